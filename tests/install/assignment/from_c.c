#include <stdio.h>

#include <ringside.h>

int main(void) {
  ringside_group* group = NULL;
  ringside_address address;
  float value = 3;
  if (ringside_listen("localhost", 5, &group, &address) != RINGSIDE_OK ||
      ringside_connect(group, 0, 1, &address, "key", "", 5) != RINGSIDE_OK ||
      ringside_all_reduce(group, &value, 1, RINGSIDE_FP32, RINGSIDE_SUM, NULL) != RINGSIDE_OK) {
    fprintf(stderr, "%s\n", ringside_last_error());
    return 1;
  }
  printf("version %d of the C interface: the sum of one rank is %g\n", ringside_abi_version(), value);
  ringside_close(group);
  return 0;
}

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#ifdef __SANITIZE_THREAD__
// OpenBLAS is not instrumented, so ThreadSanitizer sees the copies into its buffers but not the
// locks by which its threads take turns with them.
extern "C" const char* __tsan_default_suppressions() {
  return "race:libopenblas\n";
}
#endif

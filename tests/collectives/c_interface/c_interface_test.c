/* The C interface from C: ranks are processes that exchange their addresses in shared memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ringside.h"

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      printf("FAILED line %d, rank %d of %d over %s: %s (last error: %s)\n", __LINE__, rank,  \
             size, getenv("RINGSIDE_BACKEND"), #condition, ringside_last_error());            \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

enum { most = 4 };
static struct {
  volatile int arrived;
  volatile pid_t stopped;
  ringside_address addresses[most];
}* shared;
static int rank, size;

static ringside_group* connect_ranks(double timeout) {
  ringside_group* group = NULL;
  CHECK(ringside_listen("127.0.0.1", 20, &group, &shared->addresses[rank]) == RINGSIDE_OK);
  __sync_fetch_and_add(&shared->arrived, 1);
  while (shared->arrived < size) usleep(1000);
  CHECK(ringside_connect(group, rank, size, shared->addresses, "the key of this test", "",
                         timeout) == RINGSIDE_OK);
  return group;
}

static void collectives(void) {
  ringside_group* group = connect_ranks(20);
  CHECK(strcmp(ringside_transport(group), getenv("RINGSIDE_BACKEND")) == 0);
  const int sum = size * (size + 1) / 2;
  const size_t before = ringside_bytes_sent(group); /* of other calls of this group */

  float f[1000];
  for (int i = 0; i < 1000; ++i) f[i] = (float)(rank + 1 + i);
  CHECK(ringside_all_reduce(group, f, 1000, RINGSIDE_FP32, RINGSIDE_AVG, NULL) == RINGSIDE_OK);
  CHECK(ringside_bytes_sent(group) >= before + (size == 1 ? 0 : sizeof f / 2));
  for (int i = 0; i < 1000; ++i) CHECK(f[i] * 2 == (float)(size + 1 + 2 * i));

  /* 60000 and the smallest number of fp16: the sum of 60000s overflows, and nothing underflows. */
  unsigned short half[2] = {0x7b53, 1};
  CHECK(ringside_all_reduce(group, half, 2, RINGSIDE_FP16, RINGSIDE_AVG, NULL) == RINGSIDE_OK);
  CHECK(half[0] == (size == 1 ? 0x7b53 : 0x7c00) && half[1] == 1);

  long long n[3] = {rank, -rank, 7};
  CHECK(ringside_all_reduce(group, n, 3, RINGSIDE_INT64, RINGSIDE_MIN, NULL) == RINGSIDE_OK);
  CHECK(n[0] == 0 && n[1] == 1 - size && n[2] == 7);

  for (int root = 0; root < size; ++root) {
    double d[2] = {rank, 0.5};
    CHECK(ringside_broadcast(group, d, 2, RINGSIDE_FP64, root, NULL) == RINGSIDE_OK);
    CHECK(d[0] == root && d[1] == 0.5);
    int one = rank + 1;
    CHECK(ringside_reduce(group, &one, 1, RINGSIDE_INT32, RINGSIDE_SUM, root, NULL) == RINGSIDE_OK);
    CHECK(rank != root || one == sum);
    int mine[2] = {rank, 10 * rank}, all[2 * most] = {0};
    CHECK(ringside_gather(group, mine, all, 2, RINGSIDE_INT32, root, NULL) == RINGSIDE_OK);
    for (int r = 0; r < size && rank == root; ++r)
      CHECK(all[2 * r] == r && all[2 * r + 1] == 10 * r);
    for (int r = 0; r < size; ++r) all[r] = 100 * root + r;
    CHECK(ringside_scatter(group, all, mine, 1, RINGSIDE_INT32, root, NULL) == RINGSIDE_OK);
    CHECK(mine[0] == 100 * root + rank);
  }

  int own = rank + 5, gathered[most], blocks[most], reduced, exchanged[most];
  CHECK(ringside_all_gather(group, &own, gathered, 1, NULL, RINGSIDE_INT32, NULL) == RINGSIDE_OK);
  for (int r = 0; r < size; ++r) {
    CHECK(gathered[r] == r + 5);
    blocks[r] = 10 * rank + r;
  }
  CHECK(ringside_reduce_scatter(group, blocks, &reduced, 1, NULL, RINGSIDE_INT32, RINGSIDE_SUM, NULL) ==
        RINGSIDE_OK);
  CHECK(reduced == 10 * size * (size - 1) / 2 + size * rank);
  CHECK(ringside_all_to_all(group, blocks, exchanged, 1, NULL, NULL, RINGSIDE_INT32, NULL) == RINGSIDE_OK);
  for (int r = 0; r < size; ++r) CHECK(exchanged[r] == 10 * r + rank);

  /* Blocks of r + 1 elements, of which rank 1 has none in an all_to_all. */
  short mine[most], theirs[most * (most + 1) / 2], total[most];
  size_t counts[most], sent[most], received[most];
  for (int r = 0; r < size; ++r) {
    counts[r] = (size_t)r + 1;
    sent[r] = r == 1 ? 0 : (size_t)rank + 1;
    received[r] = rank == 1 ? 0 : (size_t)r + 1;
    mine[r] = (short)(-10 * rank);
  }
  CHECK(ringside_all_gather(group, mine, theirs, 0, counts, RINGSIDE_INT16, NULL) == RINGSIDE_OK);
  for (int r = 0, at = 0; r < size; ++r)
    for (int i = 0; i <= r; ++i) CHECK(theirs[at++] == -10 * r);
  CHECK(ringside_reduce_scatter(group, theirs, total, 0, counts, RINGSIDE_INT16, RINGSIDE_BIT_OR,
                                NULL) == RINGSIDE_OK);
  for (int i = 0; i <= rank; ++i) CHECK(total[i] == -10 * rank);
  short out[most * most], in[most * most];
  for (int i = 0; i < most * most; ++i) out[i] = (short)rank;
  CHECK(ringside_all_to_all(group, out, in, 0, sent, received, RINGSIDE_INT16, NULL) ==
        RINGSIDE_OK);
  for (int r = 0, at = 0; r < size && rank != 1; ++r)
    for (int i = 0; i <= r; ++i) CHECK(in[at++] == r);
  unsigned char flag = rank == 1;
  CHECK(ringside_all_reduce(group, &flag, 1, RINGSIDE_BOOL, RINGSIDE_SUM, NULL) == RINGSIDE_OK);
  CHECK(flag == 1);

  ringside_work *first = NULL, *second = NULL, *third = NULL;
  int a = 1, b = rank;
  CHECK(ringside_all_reduce(group, &a, 1, RINGSIDE_INT32, RINGSIDE_SUM, &first) == RINGSIDE_OK);
  CHECK(ringside_all_reduce(group, &b, 1, RINGSIDE_INT32, RINGSIDE_MAX, &second) == RINGSIDE_OK);
  CHECK(ringside_barrier(group, &third) == RINGSIDE_OK);
  CHECK(ringside_work_wait(second, -1) == RINGSIDE_OK && b == size - 1);
  CHECK(ringside_work_done(first) && ringside_work_wait(first, 0) == RINGSIDE_OK && a == size);
  CHECK(ringside_work_wait(third, -1) == RINGSIDE_OK);
  ringside_work_free(first);
  ringside_work_free(second);
  ringside_work_free(third);

  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int to_right = 7 * rank, from_left = -1;
  CHECK(ringside_send(group, &to_right, 1, RINGSIDE_INT32, right, 5, NULL) == RINGSIDE_OK);
  CHECK(ringside_recv(group, &from_left, 1, RINGSIDE_INT32, RINGSIDE_ANY_RANK, 5, &first) ==
        RINGSIDE_OK);
  CHECK(ringside_work_wait(first, -1) == RINGSIDE_OK && from_left == 7 * left);
  CHECK(ringside_work_source(first) == left);
  ringside_work_free(first);

  CHECK(ringside_algorithm(group, "all_reduce", 10, RINGSIDE_FP32) != NULL);
  CHECK(ringside_algorithm(group, "all_around", 10, RINGSIDE_FP32) == NULL);
  ringside_close(group);
}

/* Wrong arguments are refused with a sentence, and the group lives on. */
static void wrong_arguments(void) {
  ringside_group* group = NULL;
  CHECK(ringside_abi_version() == RINGSIDE_ABI_VERSION);
  CHECK(strcmp(ringside_last_error(), "") == 0);
  ringside_address address;
  CHECK(ringside_listen("no such host.", 5, &group, &address) == RINGSIDE_ERROR);
  CHECK(strstr(ringside_last_error(), "'no such host.' is not a host that this rank knows"));
  CHECK(ringside_listen("203.0.113.7", 5, &group, &address) == RINGSIDE_ERROR);
  CHECK(strstr(ringside_last_error(), "Expected an address of this host"));
  CHECK(ringside_barrier(NULL, NULL) == RINGSIDE_ERROR);
  CHECK(strcmp(ringside_last_error(), "expected a group, got NULL") == 0);
  CHECK(ringside_listen("localhost", 5, &group, &address) == RINGSIDE_OK);
  CHECK(ringside_barrier(group, NULL) == RINGSIDE_ERROR);
  CHECK(strstr(ringside_last_error(), "call ringside_connect() first"));
  CHECK(ringside_connect(group, 3, 2, &address, "", "", 5) == RINGSIDE_ERROR);
  CHECK(strcmp(ringside_last_error(), "rank 3 is not in a world of 2") == 0);
  ringside_close(group);

  group = connect_ranks(20);
  int n = 1;
  CHECK(ringside_all_reduce(group, &n, 1, (ringside_type)99, RINGSIDE_SUM, NULL) == RINGSIDE_ERROR);
  CHECK(strcmp(ringside_last_error(), "expected a type of ringside.h, 0 to 9, got 99") == 0);
  CHECK(ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_AVG, NULL) == RINGSIDE_ERROR);
  CHECK(strstr(ringside_last_error(), "avg is not defined for int32"));
  CHECK(ringside_broadcast(group, &n, 1, RINGSIDE_INT32, size, NULL) == RINGSIDE_ERROR);
  CHECK(strstr(ringside_last_error(), "the root must be one of the ranks 0 to"));
  CHECK(ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_SUM, NULL) == RINGSIDE_OK);
  CHECK(n == size);
  ringside_close(group);
}

/* A handle that was freed is refused: it is never read, and never stands for another object. */
static void freed_handles(void) {
  ringside_group* group = connect_ranks(20);
  ringside_work *first = NULL, *second = NULL;
  CHECK(ringside_barrier(group, &first) == RINGSIDE_OK);
  CHECK(ringside_work_wait(first, -1) == RINGSIDE_OK && ringside_work_done(first) == 1);
  ringside_work_free(first);
  CHECK(ringside_barrier(group, &second) == RINGSIDE_OK && second != first);
  const char* const freed = "expected a work, got one that ringside_work_free() has freed";
  CHECK(ringside_work_done(first) == -1 && strcmp(ringside_last_error(), freed) == 0);
  CHECK(ringside_work_wait(first, -1) == RINGSIDE_ERROR);
  CHECK(strcmp(ringside_last_error(), freed) == 0);
  CHECK(ringside_work_source(first) == -1);
  ringside_work_free(first);
  CHECK(ringside_work_wait(second, -1) == RINGSIDE_OK);
  CHECK(ringside_work_wait(NULL, -1) == RINGSIDE_ERROR);
  CHECK(strcmp(ringside_last_error(), "expected a work, got NULL") == 0);

  ringside_close(group);
  CHECK(ringside_work_done(second) == 1); /* outlives its group */
  ringside_work_free(second);
  CHECK(ringside_barrier(group, NULL) == RINGSIDE_ERROR);
  CHECK(strcmp(ringside_last_error(),
               "expected a group, got one that ringside_close() has freed") == 0);
  CHECK(ringside_barrier(group, &second) == RINGSIDE_ERROR);
  CHECK(ringside_transport(group) == NULL && ringside_bytes_sent(group) == 0);
  CHECK(ringside_algorithm(group, "all_reduce", 1, RINGSIDE_FP32) == NULL);
  ringside_abort(group, "too late");
  ringside_close(group);
}

static ringside_work* volatile in_two_hands;
static volatile int is_over;
static void* asks_all_the_time(void* unused) {
  while (!is_over) {
    ringside_work* work = in_two_hands;
    ringside_work_wait(work, 0);
    ringside_work_done(work);
    ringside_work_source(work);
  }
  return unused;
}

/* One thread asks about works that another makes and frees. */
static void two_threads(void) {
  ringside_group* group = connect_ranks(20);
  pthread_t asking;
  CHECK(pthread_create(&asking, NULL, asks_all_the_time, NULL) == 0);
  for (int i = 0; i < 500; ++i) {
    ringside_work* work = NULL;
    int n = 1;
    CHECK(ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_SUM, &work) == RINGSIDE_OK);
    in_two_hands = work;
    CHECK(ringside_work_wait(work, -1) == RINGSIDE_OK && n == size);
    ringside_work_free(work);
  }
  is_over = 1;
  CHECK(pthread_join(asking, NULL) == 0);
  ringside_close(group);
}

/* The last rank dies: all others name it. */
static void dead_rank(void) {
  ringside_group* group = connect_ranks(20);
  CHECK(ringside_barrier(group, NULL) == RINGSIDE_OK);
  if (rank == size - 1) raise(SIGKILL);
  float f = 1;
  ringside_status status = RINGSIDE_OK;
  while (status == RINGSIDE_OK)
    status = ringside_all_reduce(group, &f, 1, RINGSIDE_FP32, RINGSIDE_MAX, NULL);
  CHECK(status == RINGSIDE_RANK_FAILED);
  char expected[40];
  snprintf(expected, sizeof expected, "rank %d is gone", size - 1);
  CHECK(strstr(ringside_last_error(), expected));
  ringside_close(group);
}

static int asks;
static int interrupt_third(void) { return ++asks == 3; }

/* A call that waits for long can be asked about, abandoned and interrupted. */
static void interruption(void) {
  ringside_group* group = connect_ranks(20);
  int n = 0;
  if (rank == 0) {
    ringside_work* work = NULL;
    CHECK(ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_SUM, &work) == RINGSIDE_OK);
    CHECK(ringside_work_wait(work, 0.01) == RINGSIDE_TIMED_OUT);
    CHECK(strstr(ringside_last_error(), "has not ended after 0.01 s"));
    shared->arrived = 0; /* the others may go on */
    CHECK(ringside_work_wait(work, -1) == RINGSIDE_OK);
    ringside_work_free(work);
    ringside_check_while_waiting(interrupt_third);
    CHECK(ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_SUM, NULL) ==
          RINGSIDE_INTERRUPTED);
    CHECK(asks == 3 && strstr(ringside_last_error(), "interrupted by the user of this rank"));
    shared->arrived = -1;
  } else {
    while (shared->arrived > 0) usleep(1000);
    CHECK(ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_SUM, NULL) == RINGSIDE_OK);
    while (shared->arrived == 0) usleep(1000);
    /* What rank 0 sent before it was interrupted may be enough for one call. */
    ringside_status status = RINGSIDE_OK;
    while (status == RINGSIDE_OK)
      status = ringside_all_reduce(group, &n, 1, RINGSIDE_INT32, RINGSIDE_SUM, NULL);
    CHECK(status == RINGSIDE_RANK_FAILED);
    CHECK(strstr(ringside_last_error(), "interrupted by the user of this rank"));
  }
  ringside_close(group);
}

/* A receive for which nobody sends ends after the group's timeout, with a sentence. */
static void nobody_sends(void) {
  ringside_group* group = connect_ranks(0.5);
  int n = 0;
  const ringside_status status =
      ringside_recv(group, &n, 1, RINGSIDE_INT32, (rank + 1) % size, 0, NULL);
  CHECK(status == RINGSIDE_RANK_FAILED || status == RINGSIDE_ERROR);
  CHECK(strstr(ringside_last_error(), "rank "));
  ringside_close(group);
}

/* A rank that has sent to one that is stopped can leave after the group's timeout. */
static void receiver_is_stopped(void) {
  ringside_group* group = connect_ranks(0.5);
  if (rank == size - 1) {
    shared->stopped = getpid();
    raise(SIGSTOP);
    exit(0);
  }
  while (!shared->stopped) usleep(1000);
  const size_t much = 50000000;
  int* const data = calloc(much, sizeof *data);
  ringside_work* work = NULL;
  CHECK(ringside_send(group, data, much, RINGSIDE_INT32, size - 1, 0, &work) == RINGSIDE_OK);
  ringside_work_free(work);
  ringside_close(group);
  kill(shared->stopped, SIGKILL);
  free(data);
}

static void on_ranks(void (*body)(void), int dead) {
  const char* backends[] = {"shm", "tcp"};
  for (int b = 0; b < 2; ++b) {
    setenv("RINGSIDE_BACKEND", backends[b], 1);
    for (size = 2; size <= most; ++size) {
      shared->arrived = 0;
      shared->stopped = 0;
      fflush(stdout);
      for (rank = 0; rank < size; ++rank)
        if (fork() == 0) {
          body();
          exit(0);
        }
      int failed = 0, status;
      while (wait(&status) > 0) failed += status != 0;
      if (failed != dead) exit(1);
    }
  }
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  on_ranks(collectives, 0);
  on_ranks(wrong_arguments, 0);
  on_ranks(freed_handles, 0);
  on_ranks(two_threads, 0);
  on_ranks(dead_rank, 1);
  on_ranks(interruption, 0);
  on_ranks(nobody_sends, 0);
  on_ranks(receiver_is_stopped, 1);
  printf("the C interface works\n");
  return 0;
}

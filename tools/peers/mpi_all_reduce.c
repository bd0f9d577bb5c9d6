// The time of MPI_Allreduce, measured as `ringside bench all_reduce` measures (bench/): a
// program of its own, because a process can load only one MPI.
//
//     mpirun -n 4 ./mpi_all_reduce 64000 1000000
//
// Rank 0 prints the name of the library. Then it prints a line for each number of bytes: the time
// of a call in microseconds, of the slowest rank, and how many elements of the result are wrong.
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { blocks = 4, trial_samples = 3, fewest_samples = 7, most_in_a_batch = 10000 };
enum { warmup_calls = 5, warmup_of_long_calls = 2 };
enum { period = 509 };                   // of the data, a prime: no chunk begins like another one
static const double of_a_sample = 2e-3;  // seconds; shorter calls share a batch
static const double of_a_size = 0.5;     // seconds for all samples, unless these are too few

static int rank, ranks;

// Element i of a rank's input: small whole numbers, whose sums are exact.
static float number(int of_rank, int i) { return (float)((i * 7 + of_rank * 3) % 5); }

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* seconds, int count) {
  qsort(seconds, (size_t)count, sizeof *seconds, ascending);
  return (seconds[(count - 1) / 2] + seconds[count / 2]) / 2;
}

static double of_the_slowest_rank(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

// The mean time of a call in a batch of calls without a pause between them.
static double sample(const float* input, float* output, int count, int batch) {
  const double start = MPI_Wtime();
  for (int i = 0; i < batch; ++i)
    MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return (MPI_Wtime() - start) / batch;
}

static float* pages(int count) {
  const size_t bytes = ((size_t)count * sizeof(float) + 4095) / 4096 * 4096;
  float* const memory = aligned_alloc(4096, bytes);
  if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return memory;
}

// One block of samples, with fresh buffers. Returns how many elements are wrong.
static int measure_block(int count, int warmup, int batch, int samples, double* seconds) {
  float of_rank[period], of_all[period] = {0};
  for (int i = 0; i < period; ++i) {
    of_rank[i] = number(rank, i);
    for (int r = 0; r < ranks; ++r) of_all[i] += number(r, i);
  }
  float *const input = pages(count), *const output = pages(count);
  for (int i = 0; i < count; ++i) input[i] = of_rank[i % period];
  memset(output, 0x5a, (size_t)count * sizeof(float));

  for (int i = 0; i < warmup; ++i) sample(input, output, count, 1);
  for (int i = 0; i < samples; ++i) seconds[i] = sample(input, output, count, batch);

  int wrong = 0;
  for (int i = 0; i < count; ++i) wrong += output[i] != of_all[i % period];
  free(input), free(output);
  return wrong;
}

static void measure(int bytes) {
  const int count = bytes / (int)sizeof(float);
  double trial[trial_samples];
  int wrong = measure_block(count, warmup_calls, 1, trial_samples, trial);
  const double call = of_the_slowest_rank(median(trial, trial_samples));

  int batch = (int)(of_a_sample / call) + 1;
  if (batch > most_in_a_batch) batch = most_in_a_batch;
  int samples = (int)(of_a_size / (call * batch));
  if (samples < fewest_samples) samples = fewest_samples;
  samples = (samples + blocks - 1) / blocks;  // of a block
  const int warmup = call > of_a_sample ? warmup_of_long_calls : warmup_calls;

  double* const seconds = malloc(sizeof(double) * (size_t)(blocks * samples));
  for (int b = 0; b < blocks; ++b)
    wrong += measure_block(count, warmup, batch, samples, seconds + b * samples);
  const double time = of_the_slowest_rank(median(seconds, blocks * samples));
  free(seconds);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d %.3f %d\n", bytes, time * 1e6, wrong), fflush(stdout);
}

// Ranks that outnumber the cores are bound to them in equal numbers (bench/own_core.hpp).
static void bind_to_own_core(void) {
  cpu_set_t all, own;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || ranks <= CPU_COUNT(&all)) return;
  int core = 0;
  for (int left = rank % CPU_COUNT(&all); !CPU_ISSET(core, &all) || left-- > 0;) ++core;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  sched_setaffinity(0, sizeof own, &own);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bind_to_own_core();
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (rank == 0) printf("%.*s\n", (int)strcspn(version, "\r\n"), version);
  for (int i = 1; i < argc; ++i) measure(atoi(argv[i]));
  MPI_Finalize();
  return 0;
}

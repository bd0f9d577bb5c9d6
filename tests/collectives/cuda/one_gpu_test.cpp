// Ranks that are threads and share a GPU, against plain sums; without a GPU, the sentence that says
// so.
#include <cmath>
#include <optional>

#include "collectives/backends/nccl.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/half.hpp"
#include "collectives/one_sided/collectives.hpp"
#include "tests/collectives/cuda/skipped.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/sample.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;
using cuda::DeviceBuffer;

namespace {

float number(int rank, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 5 + i * 7) % 11);
}

template <class T>
std::vector<T> numbers(int rank, std::size_t begin, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T(number(rank, begin + i));
  return values;
}

// `values` in GPU memory, `before` elements into an allocation: aligned to 16 bytes or not.
template <class T>
struct OnGpu {
  OnGpu(const std::vector<T>& values, std::size_t before)
      : count(values.size()), skip(before), buffer((count + skip) * sizeof(T)) {
    std::vector<T> all(skip);
    all.insert(all.end(), values.begin(), values.end());
    buffer.copy_from(all.data(), all.size() * sizeof(T));
  }
  Buffer all() const { return {static_cast<T*>(buffer.data()) + skip, count, data_type_of<T>()}; }
  void must_equal(const std::vector<float>& wanted, const std::string& what) const {
    std::vector<T> all(count + skip);
    buffer.copy_to(all.data(), all.size() * sizeof(T));
    for (std::size_t i = 0; i < count; ++i)
      require(static_cast<float>(all[i + skip]) == wanted[i], "{}: element {} is {} instead of {}",
              what, i, static_cast<float>(all[i + skip]), wanted[i]);
  }
  std::size_t count, skip;
  DeviceBuffer buffer;
};

// `times` the bytes of the buffer, but for a chunk that is an element longer on some ranks.
void must_have_sent(const ProcessGroup& group, const Traffic& before, double times,
                    std::size_t bytes, const std::string& what) {
  const auto sent =
      static_cast<double>(group.traffic().payload_bytes_sent - before.payload_bytes_sent);
  require(std::abs(sent - times * static_cast<double>(bytes)) <= 4 * group.size(),
          "{}: {} bytes sent of a buffer of {}, expected {} times as many", what, sent, bytes,
          times);
}

template <class T>
void collectives_are_right(ProcessGroup& group, std::size_t count, std::size_t before) {
  const int p = group.size(), r = group.rank();
  std::vector<float> sum(count, 0), all;
  for (int rank = 0; rank < p; ++rank) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += number(rank, i);
    for (std::size_t i = group.block_begin(count, rank);
         i < group.block_begin(count, rank) + group.block_size(count, rank); ++i)
      all.push_back(number(rank, i));
  }
  const std::size_t block = group.block_size(count, r), begin = group.block_begin(count, r);
  for (const std::string algorithm : {"ring", "two_shot", "one_shot"}) {
    if (algorithm == "one_shot" && count * sizeof(T) > one_sided::most_one_shot_bytes) continue;
    group.set_algorithms(AlgorithmSelection("all_reduce=" + algorithm));
    const OnGpu<T> input(numbers<T>(r, 0, count), before), output(std::vector<T>(count), before);
    const Traffic before_call = group.traffic();
    group.all_reduce(input.all(), output.all());
    output.must_equal(sum, algorithm);
    must_have_sent(group, before_call, algorithm == "one_shot" ? p - 1 : 2.0 * (p - 1) / p,
                   count * sizeof(T), algorithm);
    group.all_reduce(input.all());
    input.must_equal(sum, algorithm + " in place");
  }
  const OnGpu<T> input(numbers<T>(r, 0, count), before), mine(numbers<T>(r, begin, block), before);
  const OnGpu<T> sums(std::vector<T>(block), before), gathered(std::vector<T>(count), before);
  const Traffic before_halves = group.traffic();
  group.reduce_scatter(input.all(), sums.all());
  sums.must_equal({sum.begin() + static_cast<std::ptrdiff_t>(begin),
                   sum.begin() + static_cast<std::ptrdiff_t>(begin + block)},
                  "reduce_scatter");
  group.all_gather(mine.all(), gathered.all());
  gathered.must_equal(all, "all_gather");
  must_have_sent(group, before_halves, 2.0 * (p - 1) / p, count * sizeof(T), "the two halves");
  group.broadcast(input.all(), p - 1);
  const auto last = numbers<float>(p - 1, 0, count);
  input.must_equal(last, "broadcast");
  group.barrier();
}

}  // namespace

TEST_CASE("a group on GPUs refuses RINGSIDE_ORDER=fixed") {
  struct OfNoGpu final : cuda::DeviceBackend {
    int rank() const override { return 0; }
    int size() const override { return 1; }
    std::string name() const override { return "none"; }
    void abort(const std::string&) noexcept override {}
    void enqueue(const Call&, const void*, void*) override {}
    void finish() override {}
    void* stream() override { return nullptr; }
  };
  CHECK_NOTHROW(OfNoGpu());
  ::setenv("RINGSIDE_ORDER", "fixed", 1);
  CHECK_THROWS_WITH_AS(OfNoGpu(),
                       "RINGSIDE_ORDER=fixed is for CPUs: GPUs add from rank 0 to the last, or as "
                       "NCCL does. Unset it, or compute with --device cpu",
                       Error);
  if (!cuda::what_is_missing())
    CHECK_THROWS_WITH_AS(cuda::make_one_gpu_backend(cuda::make_one_gpu_world(1), 0),
                         doctest::Contains("RINGSIDE_ORDER=fixed is for CPUs"), Error);
  ::unsetenv("RINGSIDE_ORDER");
}

TEST_CASE("a missing GPU is reported in one sentence") {
  const auto missing = cuda::what_is_missing();
  if (!missing) return;
  CHECK(cuda::device_count() == 0);
  CHECK_THROWS_WITH(cuda::choose_device(0), missing->c_str());
  CHECK_THROWS_WITH(cuda::make_one_gpu_world(2), missing->c_str());
  CHECK_THROWS_WITH(cuda::make_cuda_ipc_backend(rank_info_of(0, 1, 1), {}), missing->c_str());
  if (nccl_is_here()) CHECK_THROWS_WITH(make_nccl_backend(rank_info_of(0, 1, 1)), missing->c_str());
}

TEST_CASE("ranks that share a GPU get the plain sums") {
  if (skipped()) return;
  testing::Sample sample;
  for (const int size : {1, 2, 3, 4, 8})
    for (const std::size_t before : {0, 1}) {
      if (!sample.takes()) continue;
      CAPTURE(size);
      CAPTURE(before);
      const auto world = cuda::make_one_gpu_world(size, Seconds(20));
      const auto outcomes = on_threads(size, [&](int rank) {
        cuda::choose_device(0);
        ProcessGroup group(cuda::make_one_gpu_backend(world, rank));
        for (const std::size_t count : {1, 5, 1000, 100003}) {
          collectives_are_right<float>(group, count, before);
          collectives_are_right<Fp16>(group, count, before);
          collectives_are_right<Bf16>(group, count, before);
        }
      });
      for (const auto& outcome : outcomes) CHECK(outcome == "");
    }
}

TEST_CASE("a rank that shares a GPU and never makes the call is named") {
  if (skipped()) return;
  const auto world = cuda::make_one_gpu_world(2, Seconds(1));
  const auto outcomes = on_threads(
      1, [&](int rank) { ProcessGroup(cuda::make_one_gpu_backend(world, rank)).barrier(); });
  CHECK(contains(outcomes[0], "these did not call it within 1 s: 1"));
}

TEST_CASE("memory of the host is an error that says what to use") {
  if (skipped()) return;
  ProcessGroup group(cuda::make_one_gpu_backend(cuda::make_one_gpu_world(1), 0));
  std::vector<float> host(4);
  CHECK_THROWS_WITH(
      group.all_reduce(std::span(host)),
      "all_reduce of 4 fp32 (sum, ring): expected memory of a GPU, got a buffer of the "
      "host: allocate it with DeviceBuffer or cudaMalloc");
}

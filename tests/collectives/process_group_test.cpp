// Every collective over every transport, against plain sums: worlds of 1 to 5, many counts, tiny
// slices.
#include <fmt/ranges.h>

#include "collectives/process_group.hpp"

#include <atomic>
#include <fstream>

#include <pthread.h>
#include <sys/resource.h>

#include "base/random.hpp"
#include "collectives/algorithms/aligned_chunks.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Rank r's i-th number: a small integer, so that sums and products are exact in every type.
template <class T>
T number(int rank, std::size_t i) {
  return static_cast<T>(static_cast<std::int64_t>(random_below(19, 7, rank, i)) - 9);
}

template <class T>
std::vector<T> numbers(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = number<T>(rank, i);
  return values;
}

template <class T>
T expected(ReduceOp op, int size, std::size_t i) {
  T result = number<T>(0, i);
  for (int r = 1; r < size; ++r) {
    const T x = number<T>(r, i);
    if (op == ReduceOp::sum || op == ReduceOp::avg) result += x;
    if (op == ReduceOp::product) result *= x;
    if (op == ReduceOp::min) result = std::min(result, x);
    if (op == ReduceOp::max) result = std::max(result, x);
  }
  return op == ReduceOp::avg ? result / static_cast<T>(size) : result;
}

std::vector<std::size_t> counts_for(int size) {
  const auto p = static_cast<std::size_t>(size);
  return {0, 1, p - 1, p, p + 1, 17, 16 * p, 1003, 4096};
}

GroupOptions tiny_slices() {
  GroupOptions options;
  options.executor.slice_bytes = 128;
  options.executor.slices_per_segment = 2;
  options.executor.timeout = Seconds(20);
  return options;
}

// doctest's CHECK is not thread-safe, so the body of a rank throws.
template <class T>
void must_equal(const std::vector<T>& seen, const std::vector<T>& wanted, const char* what) {
  require(std::equal(seen.begin(), seen.end(), wanted.begin(), wanted.end()),
          "{}: {} instead of {}", what,
          seen.size() < 40 ? fmt::format("{}", seen) : "other numbers",
          wanted.size() < 40 ? fmt::format("{}", wanted) : "the expected");
}

template <class T>
void all_collectives_agree(ProcessGroup& group) {
  const int p = group.size(), r = group.rank();
  for (const std::size_t count : counts_for(p)) {
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      if (op == ReduceOp::avg && std::is_integral_v<T>) continue;
      std::vector<T> wanted(count);
      for (std::size_t i = 0; i < count; ++i) wanted[i] = expected<T>(op, p, i);
      const std::size_t begin = group.block_begin(count, r), length = group.block_size(count, r);
      const std::vector<T> wanted_block(wanted.begin() + begin, wanted.begin() + begin + length);

      const std::vector<T> input = numbers<T>(r, count);
      std::vector<T> in_place = input, out_of_place(count, T(77)), block(length, T(77));
      group.all_reduce(std::span(in_place), op);
      must_equal(in_place, wanted, "all_reduce in place");
      group.all_reduce(std::span(input), std::span(out_of_place), op);
      must_equal(out_of_place, wanted, "all_reduce out of place");
      must_equal(input, numbers<T>(r, count), "the input of all_reduce");

      group.reduce_scatter(std::span(input), std::span(block), op);
      must_equal(block, wanted_block, "reduce_scatter");
      must_equal(input, numbers<T>(r, count), "the input of reduce_scatter");
      std::vector<T> both = input;  // the output may be this rank's block of the input
      group.reduce_scatter(std::span(both), std::span(both).subspan(begin, length), op);
      must_equal(std::vector<T>(both.begin() + begin, both.begin() + begin + length), wanted_block,
                 "reduce_scatter in place");

      std::vector<T> gathered(count, T(77)), gathered_in_place(count, T(77));
      group.all_gather(std::span(block), std::span(gathered));
      must_equal(gathered, wanted, "all_gather");
      std::copy(block.begin(), block.end(), gathered_in_place.begin() + begin);
      group.all_gather(std::span(gathered_in_place).subspan(begin, length),
                       std::span(gathered_in_place));
      must_equal(gathered_in_place, wanted, "all_gather in place");

      for (int root = 0; root < p; ++root) {
        std::vector<T> reduced(r == root ? count : 0, T(77));
        group.reduce(std::span(input), std::span(reduced), root, op);
        if (r == root) must_equal(reduced, wanted, "reduce");
        must_equal(input, numbers<T>(r, count), "the input of reduce");
        std::vector<T> sent = input;
        group.broadcast(std::span(sent), root);
        must_equal(sent, numbers<T>(root, count), "broadcast");
      }
    }
    group.barrier();
  }
}

// While it lives, the address space of this process has room for the stacks of `threads` more
// threads only. (A limit on the number of threads does not hold for root.)
class RoomForThreads {
 public:
  explicit RoomForThreads(std::size_t threads) {
    constexpr std::size_t stack = std::size_t{64} << 20;
    pthread_getattr_default_np(&usual_);
    pthread_attr_t large = usual_;
    pthread_attr_setstacksize(&large, stack);
    pthread_setattr_default_np(&large);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = pages * 4096 + threads * stack + stack / 2;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~RoomForThreads() {
    ::setrlimit(RLIMIT_AS, &before_);
    pthread_setattr_default_np(&usual_);
  }
  RoomForThreads(const RoomForThreads&) = delete;
  RoomForThreads& operator=(const RoomForThreads&) = delete;

 private:
  pthread_attr_t usual_;
  rlimit before_;
};

// What `call` throws.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every collective gives the plain result in worlds of 1 to 5") {
  for (const int size : {1, 2, 3, 4, 5}) {
    CAPTURE(size);
    on_every_transport(size, [](ProcessGroup& group) {
      all_collectives_agree<float>(group);
      all_collectives_agree<double>(group);
      all_collectives_agree<std::int32_t>(group);
      all_collectives_agree<std::int64_t>(group);
      all_collectives_agree<std::uint8_t>(group);
    });
  }
}

TEST_CASE("slices of 128 bytes give the same result") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    on_every_transport(
        size, [](ProcessGroup& group) { all_collectives_agree<float>(group); }, tiny_slices());
  }
}

TEST_CASE("long buffers pass through many segments") {
  for (const int size : {2, 3, 4}) {
    on_every_transport(size, [](ProcessGroup& group) {
      const std::size_t count = 3000017;
      const auto input = numbers<float>(group.rank(), count);
      std::vector<float> wanted(count), output(count), block(group.block_size(count, group.rank()));
      for (std::size_t i = 0; i < count; ++i)
        wanted[i] = expected<float>(ReduceOp::sum, group.size(), i);
      group.all_reduce(std::span(input), std::span(output));
      must_equal(output, wanted, "all_reduce");
      group.reduce_scatter(std::span(input), std::span(block));
      const auto begin =
          wanted.begin() + static_cast<std::ptrdiff_t>(group.block_begin(count, group.rank()));
      must_equal(block,
                 std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(block.size())),
                 "reduce_scatter");
    });
  }
}

TEST_CASE("integers wrap around as in other libraries") {
  on_every_transport(3, [](ProcessGroup& group) {
    std::vector<std::int32_t> x = {2000000000};
    group.all_reduce(std::span(x));
    must_equal(x, {1705032704}, "the sum of three times 2000000000");
  });
}

TEST_CASE("all ranks get the same bits, however sums are rounded") {
  for (const int size : {3, 4, 5}) {
    on_every_transport(size, [](ProcessGroup& group) {
      std::vector<float> x(1001), first(1001);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(random_normal(3, group.rank(), i));
      group.all_reduce(std::span(x), ReduceOp::avg);
      first = x;
      group.broadcast(std::span(first), 0);
      must_equal(x, first, "rank 0's bits");
    });
  }
}

TEST_CASE("each rank of a ring all-reduce sends exactly 2 (p-1)/p of the buffer") {
  GroupOptions ring;
  ring.algorithms = AlgorithmSelection("all_reduce=ring");
  for (const int size : {1, 2, 3, 4, 7}) {
    for (const std::size_t count : {std::size_t(0), std::size_t(1), std::size_t(1000),
                                    std::size_t(840 * 16), std::size_t(100003)}) {
      CAPTURE(size);
      CAPTURE(count);
      on_every_transport(
          size,
          [&](ProcessGroup& group) {
            std::vector<float> x(count);
            const auto before = group.traffic().payload_bytes_sent;
            group.all_reduce(std::span(x));
            const auto sent = group.traffic().payload_bytes_sent - before;
            // Rank r sends all chunks except its own, then all except its right neighbour's.
            const Chunks chunks = aligned_chunks(count, group.size(), sizeof(float));
            const int right = wrap(group.rank() + 1, group.size());
            const std::size_t exact =
                group.size() == 1
                    ? 0
                    : 4 * (2 * count - chunks.size(group.rank()) - chunks.size(right));
            require(sent == exact, "rank {} sent {} bytes instead of {}", group.rank(), sent,
                    exact);
            if (count % (16 * group.size()) == 0) {
              const std::size_t formula = 2 * (group.size() - 1) * count * 4 / group.size();
              require(sent == formula,
                      "rank {} sent {} bytes instead of 2 (p-1)/p of the buffer {}", group.rank(),
                      sent, formula);
            }
          },
          ring);
    }
  }
}

TEST_CASE("no rank leaves a barrier before all have entered") {
  for (const int size : {2, 3, 4, 5, 7})
    for (int late = 0; late < size; ++late) {
      CAPTURE(size);
      CAPTURE(late);
      std::atomic<int> came = 0;
      on_every_transport(size, [&](ProcessGroup& group) {
        group.barrier();
        if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ++came;
        group.barrier();
        require(came % size == 0, "rank {} left when only {} ranks had entered", group.rank(),
                came % size);
        group.barrier();
      });
    }
}

TEST_CASE("spans of the wrong length or type are an error before anything is sent") {
  run_threads(2, [](ProcessGroup& group) {
    std::vector<float> three(3), four(4);
    const auto seen = error_of([&] { group.all_reduce(std::span(three), std::span(four)); });
    require(seen == "all_reduce: expected a span of 3 elements, got 4", "{}", seen);
    const auto scatter = error_of([&] { group.reduce_scatter(std::span(four), std::span(three)); });
    require(scatter == "reduce_scatter: expected a span of 2 elements, got 3", "{}", scatter);
    std::vector<double> doubles(3);
    const auto type = error_of([&] { group.all_reduce(std::span(three), std::span(doubles)); });
    require(type == "all_reduce: expected input and output of one type, got fp32 and fp64", "{}",
            type);
    const auto root = error_of([&] { group.broadcast(std::span(three), 2); });
    require(root == "broadcast: the root must be one of the ranks 0 to 1, not 2", "{}", root);
    std::vector<std::int32_t> whole(3);
    const auto avg = error_of([&] { group.all_reduce(std::span(whole), ReduceOp::avg); });
    require(avg ==
                "all_reduce: avg is not defined for int32; use sum and divide with the rounding "
                "that you need",
            "{}", avg);
    group.barrier();  // the group can still be used
  });
}

// The limit on the address space would also hit what the sanitizers allocate.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a rank whose thread cannot be started is named, and no other begins") {
  const RoomForThreads room(1);
  std::atomic<int> started = 0;
  const auto error = error_of([&] {
    run_threads(4, [&](ProcessGroup& group) {
      ++started;
      group.barrier();
    });
  });
  CHECK(error ==
        "cannot start a thread for rank 2 of 4: Resource temporarily unavailable; is a limit on "
        "threads (ulimit -u) or memory (ulimit -v) reached?");
  CHECK(started == 0);
}

TEST_CASE("a group whose thread for asynchronous calls cannot be started can still be used") {
  run_threads(1, [](ProcessGroup& group) {
    std::vector<float> x{3};
    {
      const RoomForThreads room(0);
      const auto error = error_of([&] { group.all_reduce_async(std::span(x)); });
      require(error.starts_with("cannot start a thread for asynchronous calls: "), "{}", error);
    }
    group.all_reduce(std::span(x));
    group.all_reduce_async(std::span(x)).wait();
    require(x[0] == 3, "the sum is {}", x[0]);
    require(group.times().calls == 2, "{} calls ran, expected 2: the call that threw must not run",
            group.times().calls);
  });
}
#endif

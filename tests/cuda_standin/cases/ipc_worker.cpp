// A rank of cuda_ipc, for spinning_test.cpp, which starts it with `ringside launch`.
//
//     ipc_worker check       every collective against plain sums, bit for bit
//     ipc_worker calls       how many calls of the CUDA runtime a small all_reduce makes
//     ipc_worker mismatch    rank 1 makes another call
//     ipc_worker late        rank 1 makes the call after the deadline
//     ipc_worker held | die | interrupt
//                            The last block of rank 1 does not begin, and the others wait for it.
//                            held: until the deadline; die: rank 1 is killed; interrupt: rank 1 is
//                            interrupted
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/half.hpp"
#include "collectives/one_sided/collectives.hpp"
#include "collectives/process_group.hpp"
#include "tests/cuda_standin/standin.hpp"

using namespace ringside;
using namespace ringside::collectives;
using cuda::DeviceBuffer;

namespace {

// `exact`: small integers, whose sum is the same in every order. Otherwise the order shows.
template <class T>
T number(bool exact, int rank, std::size_t i) {
  const auto bits = random_bits(7, static_cast<std::uint64_t>(rank), i);
  return T(exact ? static_cast<float>(bits % 8)
                 : static_cast<float>(static_cast<double>(bits % 2000001) * 1e-6 - 1.0));
}

// Elements in GPU memory, `before` elements into an allocation: aligned to 16 bytes or not.
template <class T>
class OnGpu {
 public:
  OnGpu(const std::vector<T>& values, std::size_t before)
      : count_(values.size()), before_(before), buffer_((count_ + before) * sizeof(T)) {
    std::vector<T> all(before);
    all.insert(all.end(), values.begin(), values.end());
    buffer_.copy_from(all.data(), all.size() * sizeof(T));
  }
  Buffer buffer() const {
    return {static_cast<T*>(buffer_.data()) + before_, count_, data_type_of<T>()};
  }
  void must_equal(const std::vector<T>& wanted, const std::string& what) const {
    std::vector<T> all(count_ + before_);
    buffer_.copy_to(all.data(), all.size() * sizeof(T));
    require(wanted.size() == count_, "{}: {} elements instead of {}", what, count_, wanted.size());
    for (std::size_t i = 0; i < count_; ++i)
      require(std::memcmp(&all[before_ + i], &wanted[i], sizeof(T)) == 0,
              "{}: element {} of {} is {} instead of {}", what, i, count_,
              static_cast<float>(all[before_ + i]), static_cast<float>(wanted[i]));
  }

 private:
  std::size_t count_, before_;
  DeviceBuffer buffer_;
};

template <class T>
void check(ProcessGroup& group, const std::string& algorithm, std::size_t count, std::size_t before,
           ReduceOp op) {
  const bool exact = algorithm == "ring";  // it adds in another order in each chunk
  const int size = group.size(), rank = group.rank();
  const float scale = op == ReduceOp::avg ? 1.0f / static_cast<float>(size) : 1.0f;
  std::vector<T> sum(count), mine(count), gathered;
  for (std::size_t i = 0; i < count; ++i) {
    float total = 0;
    for (int r = 0; r < size; ++r) total += static_cast<float>(number<T>(exact, r, i));
    sum[i] = T(total * scale);
    mine[i] = number<T>(exact, rank, i);
  }
  const std::string what = fmt::format("{} {} of {}, {}", algorithm, name_of(data_type_of<T>()),
                                       count, before ? "unaligned" : "aligned");
  const OnGpu<T> input(mine, before), output(std::vector<T>(count), before);
  group.all_reduce(input.buffer(), output.buffer(), op);
  output.must_equal(sum, "all_reduce by " + what);
  input.must_equal(mine, "the input of all_reduce by " + what);
  const OnGpu<T> in_place(mine, before);
  group.all_reduce(in_place.buffer(), op);
  in_place.must_equal(sum, "all_reduce in place by " + what);
  if (algorithm != "auto") return;

  const auto begin = static_cast<std::ptrdiff_t>(group.block_begin(count, rank)),
             length = static_cast<std::ptrdiff_t>(group.block_size(count, rank));
  const OnGpu<T> block(std::vector<T>(static_cast<std::size_t>(length)), before);
  group.reduce_scatter(input.buffer(), block.buffer(), op);
  block.must_equal({sum.begin() + begin, sum.begin() + begin + length}, "reduce_scatter, " + what);

  for (int r = 0; r < size; ++r)
    for (std::size_t i = 0; i < group.block_size(count, r); ++i)
      gathered.push_back(number<T>(exact, r, group.block_begin(count, r) + i));
  const OnGpu<T> part({mine.begin() + begin, mine.begin() + begin + length}, before);
  group.all_gather(part.buffer(), output.buffer());
  output.must_equal(gathered, "all_gather, " + what);

  std::vector<T> of_root;
  for (std::size_t i = 0; i < count; ++i) of_root.push_back(number<T>(exact, size - 1, i));
  const OnGpu<T> sent(mine, before);
  group.broadcast(sent.buffer(), size - 1);
  sent.must_equal(of_root, "broadcast, " + what);
  group.barrier();
}

ProcessGroup connect(ProcessGroup& hosts, const std::string& algorithm, Seconds timeout) {
  // Areas of 40 KB: a large call takes many tiles.
  return ProcessGroup(cuda::make_cuda_ipc_backend(
      hosts, rank_info_from_environment().local_rank,
      {.timeout = timeout, .area_bytes = 40000, .all_reduce = algorithm}));
}

void check_all(ProcessGroup& hosts) {
  for (const std::string algorithm : {"auto", "two_shot", "ring", "one_shot"}) {
    ProcessGroup group = connect(hosts, algorithm, Seconds(60));
    require(group.backend_name() == "cuda_ipc", "this is {}", group.backend_name());
    for (const std::size_t count : {0, 1, 7, 1000, 20011, 50001})
      for (const std::size_t before : {0, 1}) {
        if (algorithm == "one_shot" && count * 4 > one_sided::most_one_shot_bytes) continue;
        check<float>(group, algorithm, count, before, ReduceOp::sum);
        check<Fp16>(group, algorithm, count, before, ReduceOp::avg);
        check<Bf16>(group, algorithm, count, before, ReduceOp::sum);
      }
  }
}

// Every call of a small all_reduce: choose the device, launch, and see that the stream is done.
void count_calls(ProcessGroup& hosts) {
  ProcessGroup group = connect(hosts, "auto", Seconds(60));
  const OnGpu<float> data(std::vector<float>(100), 0);
  group.all_reduce(data.buffer());
  const auto before = standin::usage();
  for (int i = 0; i < 10; ++i) group.all_reduce(data.buffer());
  const auto after = standin::usage();
  require(after.calls - before.calls == 30, "10 calls made {} calls of the runtime",
          after.calls - before.calls);
  require(after.allocations == before.allocations, "a call has allocated memory");
}

void fail_on_purpose(ProcessGroup& hosts, const std::string& mode) {
  auto backend = cuda::make_cuda_ipc_backend(
      hosts, rank_info_from_environment().local_rank,
      {.timeout = Seconds(mode == "held" || mode == "late" ? 2 : 100), .area_bytes = 40000});
  const DeviceBuffer buffer(400000);
  Call call;
  call.collective = Collective::all_reduce;
  call.algorithm = 3;
  call.count = 100000;
  backend->run(call, buffer.data(), buffer.data());
  std::optional<standin::HeldBlock> held;
  std::thread later;
  if (hosts.rank() == 1) {
    if (mode == "late") std::this_thread::sleep_for(Seconds(8));
    if (mode == "mismatch") call.count = 1000;
    if (mode == "held" || mode == "die" || mode == "interrupt") held.emplace();
    if (mode == "die" || mode == "interrupt")
      later = std::thread([&] {
        std::this_thread::sleep_for(Seconds(0.5));
        if (mode == "die") std::raise(SIGKILL);
        backend->interrupt("somebody pulled the plug");
        std::this_thread::sleep_for(Seconds(2));  // the other blocks end without this one
        held.reset();
      });
    if (mode == "held")
      later = std::thread([&] {
        std::this_thread::sleep_for(Seconds(4));
        held.reset();
      });
  }
  std::string error = "no error";
  try {
    backend->run(call, buffer.data(), buffer.data());
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  if (later.joinable()) later.join();
  std::printf("rank %d: %s\n", hosts.rank(), error.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  try {
    ProcessGroup hosts = ProcessGroup::from_environment();
    if (mode == "check") {
      check_all(hosts);
      hosts.finish();
    } else if (mode == "calls") {
      count_calls(hosts);
    } else {
      fail_on_purpose(hosts, mode);
    }
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}

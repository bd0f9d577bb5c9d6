// A rank of cuda_ipc, for spinning_test.cpp, which starts it with `ringside launch`.
//
//     ipc_worker check       every collective against plain sums, bit for bit
//     ipc_worker copies      the same, of ranks that share a GPU
//     ipc_worker calls       how many calls of the CUDA runtime a small all_reduce makes
//     ipc_worker queued      calls of several sizes queue up on the device
//     ipc_worker captured    a CUDA graph of calls, launched three times
//     ipc_worker groups      five groups' calls, begun in another order on each rank
//     ipc_worker lazy        rank 1 begins when rank 0 has launched a kernel for the first time
//     ipc_worker argument    rank 1 passes memory of the host: what is freed afterwards
//     ipc_worker touch_new | touch_result | touch_peer
//                            the host reads device memory that is new, that a copy has written,
//                            that belongs to a peer: the stand-in ends the process with a sentence
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

#include "base/cuda.hpp"
#include "base/random.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/kernels.hpp"
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
  const std::uint64_t before_call = group.traffic().payload_bytes_sent;
  group.all_reduce(input.buffer(), output.buffer(), op);
  output.must_equal(sum, "all_reduce by " + what);
  const std::size_t bytes_sent = group.traffic().payload_bytes_sent - before_call,
                    peers = static_cast<std::size_t>(size) - 1,
                    own = group.block_size(count, rank) * sizeof(T), all = count * sizeof(T);
  // By packets, or by copies, all inputs go to all; else each rank's chunk comes and goes.
  const bool one_shot = algorithm == "one_shot" || group.backend_name() != "cuda_ipc" ||
                        (algorithm == "auto" && cuda::cuda_ipc_algorithm(all) == "one_shot");
  require(bytes_sent == (one_shot ? peers * all : all - own + peers * own),
          "all_reduce by {}: {} bytes sent of {}", what, bytes_sent, all);
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

void check_all(ProcessGroup& hosts, bool by_copies) {
  for (const std::string algorithm : {"auto", "two_shot", "ring", "one_shot"}) {
    if (by_copies && algorithm != "auto") continue;
    ProcessGroup group = connect(hosts, algorithm, Seconds(60));
    require((group.backend_name() != "cuda_ipc") == by_copies, "this is {}", group.backend_name());
    for (const std::size_t count : {0, 1, 7, 1000, 20011, 50001})
      for (const std::size_t before : {0, 1}) {
        if (algorithm == "one_shot" && count * 4 > one_sided::most_one_shot_bytes) continue;
        check<float>(group, algorithm, count, before, ReduceOp::sum);
        check<Fp16>(group, algorithm, count, before, ReduceOp::avg);
        check<Bf16>(group, algorithm, count, before, ReduceOp::sum);
      }
  }
}

// Every call of a small all_reduce: choose the device, twice, ask whether the stream is captured,
// launch, and see that the stream is done.
void count_calls(ProcessGroup& hosts) {
  ProcessGroup group = connect(hosts, "auto", Seconds(60));
  const OnGpu<float> data(std::vector<float>(100), 0);
  group.all_reduce(data.buffer());
  const auto before = standin::usage();
  for (int i = 0; i < 10; ++i) group.all_reduce(data.buffer());
  const auto after = standin::usage();
  require(after.calls - before.calls == 50, "10 calls made {} calls of the runtime",
          after.calls - before.calls);
  require(after.allocations == before.allocations, "a call has allocated memory");
}

// Elements of a call, and its place among the calls: the sums of all ranks tell them apart.
std::vector<float> numbers(int rank, std::size_t count, int call) {
  return std::vector<float>(count, static_cast<float>((rank + 1) * (call + 1)));
}
float sum_of_numbers(int ranks, int call) {
  return static_cast<float>(ranks * (ranks + 1) / 2 * (call + 1));
}

Call all_reduce_of(std::size_t count) {
  Call call;
  call.collective = Collective::all_reduce;
  call.count = count;
  return call;
}

// The sizes make calls of one phase and of two follow each other, and of packets and of flags.
void check_queued(ProcessGroup& hosts) {
  const auto backend = cuda::make_cuda_ipc_backend(hosts, rank_info_from_environment().local_rank,
                                                   {.timeout = Seconds(60), .area_bytes = 40000});
  constexpr std::size_t sizes[] = {100, 100, 100, 30000, 100, 30000, 30000, 9000, 9000, 9000};
  std::vector<std::unique_ptr<OnGpu<float>>> data;
  std::vector<std::size_t> counts;
  for (int i = 0; i < 40; ++i) {
    counts.push_back(sizes[static_cast<std::size_t>(i) % std::size(sizes)]);
    data.push_back(std::make_unique<OnGpu<float>>(numbers(hosts.rank(), counts.back(), i), 0));
  }
  const auto at = [&](int i) { return static_cast<std::size_t>(i); };
  for (int i = 0; i < 40; ++i) {
    void* const buffer = data[at(i)]->buffer().address;
    backend->enqueue(all_reduce_of(counts[at(i)]), buffer, buffer);
  }
  backend->finish();
  for (int i = 0; i < 40; ++i)
    data[at(i)]->must_equal(std::vector<float>(counts[at(i)], sum_of_numbers(hosts.size(), i)),
                            fmt::format("call {} of the queue", i));
}

void check_captured(ProcessGroup& hosts) {
  const auto backend = cuda::make_cuda_ipc_backend(hosts, rank_info_from_environment().local_rank,
                                                   {.timeout = Seconds(60), .area_bytes = 40000});
  const auto stream = static_cast<cudaStream_t>(backend->stream());
  const auto check = [](cudaError_t result) {
    require(result == cudaSuccess, "{}", cudaGetErrorString(result));
  };
  const OnGpu<float> small(numbers(hosts.rank(), 100, 0), 0),
      large(numbers(hosts.rank(), 30000, 0), 0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (const auto* data : {&small, &large})
    backend->enqueue(all_reduce_of(data->buffer().count), data->buffer().address,
                     data->buffer().address);
  check(cudaStreamEndCapture(stream, &graph));
  small.must_equal(numbers(hosts.rank(), 100, 0), "what was captured and not launched");
  check(cudaGraphInstantiate(&exec, graph, 0));
  float sum = sum_of_numbers(hosts.size(), 0);
  for (int launches = 0; launches < 3; ++launches, sum *= static_cast<float>(hosts.size())) {
    check(cudaGraphLaunch(exec, stream));
    backend->finish();
    small.must_equal(std::vector<float>(100, sum), "small");
    large.must_equal(std::vector<float>(30000, sum), "large");
  }
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
}

// All begin before any has to end. One group's kernels must not keep another's from running.
void check_groups(ProcessGroup& hosts) {
  constexpr int groups = 5;
  std::vector<std::unique_ptr<cuda::DeviceBackend>> backends;
  std::vector<std::unique_ptr<OnGpu<float>>> data;
  for (int g = 0; g < groups; ++g) {
    backends.push_back(cuda::make_cuda_ipc_backend(hosts, rank_info_from_environment().local_rank,
                                                   {.timeout = Seconds(5), .area_bytes = 40000}));
    data.push_back(std::make_unique<OnGpu<float>>(numbers(hosts.rank(), 100000, g), 0));
    if (hosts.rank() == 0) std::printf("group %d: %s\n", g, backends.back()->name().c_str());
  }
  hosts.barrier();
  std::vector<std::thread> calls;
  std::string error;
  for (int i = 0; i < groups; ++i) {
    const auto g = static_cast<std::size_t>((i + hosts.rank()) % groups);
    calls.emplace_back([&, g] {
      try {
        void* const buffer = data[g]->buffer().address;
        for (int n = 0; n < 5; ++n) backends[g]->run(all_reduce_of(100000), buffer, buffer);
      } catch (const std::exception& failure) {
        error = failure.what();
      }
    });
    std::this_thread::sleep_for(Seconds(0.02));  // the orders differ more surely
  }
  for (auto& call : calls) call.join();
  require(error == "", "{}", error);
}

// Rank 0's kernel waits for rank 1's, and rank 1 for the launch of another kernel on rank 0.
void check_lazy(ProcessGroup& hosts) {
  const auto backend = cuda::make_cuda_ipc_backend(hosts, rank_info_from_environment().local_rank,
                                                   {.timeout = Seconds(5), .area_bytes = 40000});
  const DeviceBuffer buffer(40000), sum(40000);
  const CudaStream stream("making a stream");
  backend->run(all_reduce_of(10000), buffer.data(), buffer.data());
  std::string error;
  const auto run = [&] {
    try {
      backend->run(all_reduce_of(10000), buffer.data(), buffer.data());
    } catch (const std::exception& failure) {
      error = failure.what();
    }
  };
  std::thread call;
  if (hosts.rank() == 0) {
    call = std::thread(run);
    while (standin::usage().blocks == 0) std::this_thread::yield();
    cuda::Addends<float> addends;
    addends.count = 1;
    addends.input[0] = static_cast<const float*>(sum.data());
    check_cuda(cuda::launch_sum(addends, static_cast<float*>(sum.data()), 10000, 1.0f, 1, stream),
               "launching a kernel for the first time");
  }
  hosts.barrier();
  if (hosts.rank() == 1) call = std::thread(run);
  call.join();
  require(error == "", "{}", error);
}

void check_argument(ProcessGroup& hosts) {
  const int before = standin::usage().allocations;
  {
    const auto backend = cuda::make_cuda_ipc_backend(hosts, rank_info_from_environment().local_rank,
                                                     {.timeout = Seconds(60), .area_bytes = 40000});
    const DeviceBuffer buffer(400);
    std::vector<float> host(100);
    backend->run(all_reduce_of(100), buffer.data(), buffer.data());
    hosts.barrier();  // all are through the call: rank 1 ends soon
    void* const data = hosts.rank() == 1 ? host.data() : buffer.data();
    try {
      backend->run(all_reduce_of(100), data, data);
      fail("the call went well");
    } catch (const RankFailure& failure) {
      std::printf("rank %d: %s\n", hosts.rank(), failure.what());
    }
    require(!device_is_stuck, "the device counts as stuck");
  }
  // The arena itself stays, because peers may have it open.
  require(standin::usage().allocations == before + 1, "{} allocations were not freed",
          standin::usage().allocations - before);
  require(standin::usage().violations.empty(), "{}", standin::usage().violations);
}

// In a process alone; touch_peer: rank 0 reads the memory of rank 1.
void touch(const std::string& mode) {
  cuda::choose_device(mode == "touch_peer" ? rank_info_from_environment().local_rank : 0);
  DeviceBuffer buffer(4096);
  const float number = 1;
  if (mode == "touch_result") buffer.copy_from(&number, sizeof number);
  if (mode != "touch_peer") {
    std::printf("%f\n", *static_cast<const float*>(buffer.data()));
    return;
  }
  ProcessGroup hosts = ProcessGroup::from_environment();
  cudaIpcMemHandle_t handles[2];
  check_cuda(cudaIpcGetMemHandle(&handles[hosts.rank()], buffer.data()), "sharing memory");
  hosts.broadcast(Buffer(&handles[1], sizeof handles[1], DataType::uint8), 1);
  if (hosts.rank() == 0) {
    void* theirs = nullptr;
    check_cuda(cudaIpcOpenMemHandle(&theirs, handles[1], cudaIpcMemLazyEnablePeerAccess),
               "opening it");
    std::printf("%f\n", *static_cast<const float*>(theirs));
  }
  hosts.barrier();
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
    if (mode.starts_with("touch")) {
      touch(mode);
      return 0;
    }
    ProcessGroup hosts = ProcessGroup::from_environment();
    if (mode == "check" || mode == "copies") {
      check_all(hosts, mode == "copies");
      hosts.finish();
    } else if (mode == "queued") {
      check_queued(hosts);
    } else if (mode == "captured") {
      check_captured(hosts);
    } else if (mode == "groups") {
      check_groups(hosts);
    } else if (mode == "lazy") {
      check_lazy(hosts);
    } else if (mode == "argument") {
      check_argument(hosts);
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

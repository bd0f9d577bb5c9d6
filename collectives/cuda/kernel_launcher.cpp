#include "collectives/cuda/kernel_launcher.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <thread>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/proof/pull.hpp"

namespace ringside::collectives::cuda {

using one_sided::HostMemory;
using one_sided::HostWords;

namespace {

// How much longer the host waits than the kernel, which knows what it waited for.
constexpr Seconds more_than_the_kernel{1};

bool is_done(cudaStream_t stream, const Call& call) {
  const cudaError_t done = cudaStreamQuery(stream);
  if (done == cudaSuccess) return true;
  if (done != cudaErrorNotReady)
    check_cuda(done, fmt::format("{}: waiting for the GPU", describe(call)));
  static_cast<void>(cudaGetLastError());  // "not ready" is no error
  return false;
}

}  // namespace

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

void await_end(cudaStream_t stream) noexcept {
  for (const Deadline grace = Deadline::after(Seconds(5)); !grace.expired();) {
    if (cudaStreamQuery(stream) != cudaErrorNotReady) return;
    static_cast<void>(cudaGetLastError());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  device_is_stuck = true;
}

void await_stream(cudaStream_t stream, const Call& call, const std::string& whose, Seconds timeout,
                  const std::function<void()>& look) {
  constexpr int polls_without_sleep = 2000;
  const Deadline deadline = Deadline::after(timeout + more_than_the_kernel);
  for (int polls = 0; !is_done(stream, call); ++polls) {
    if (polls < polls_without_sleep)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    look();
    require(!deadline.expired(), "{}: {} GPU did not finish within {} s", describe(call), whose,
            timeout.count());
  }
}

void require_kernel(const Call& call) {
  using enum Collective;
  require(call.type == DataType::fp32 || call.type == DataType::fp16 || call.type == DataType::bf16,
          "{}: the kernels support fp32, fp16 and bf16", describe(call));
  require(!reduces(call.collective) || call.reduce == ReduceOp::sum || call.reduce == ReduceOp::avg,
          "{}: the kernels support sum and avg", describe(call));
  const Collective it = call.collective;
  require(it == all_reduce || it == reduce_scatter || it == all_gather || it == broadcast,
          "{}: the kernels support all_reduce, reduce_scatter, all_gather, broadcast and barrier",
          describe(call));
}

Kernel kernel_for(const Call& call) {
  if (call.collective == Collective::reduce_scatter) return Kernel::reduce_scatter;
  if (call.collective == Collective::all_gather) return Kernel::all_gather;
  if (call.collective == Collective::broadcast) return Kernel::broadcast;
  const std::string_view name = algorithm_numbered(call.algorithm)->name;
  if (name == "ring") return Kernel::ring;
  if (name == "two_shot") return Kernel::two_shot;
  require(name == "one_shot",
          "{}: the kernels of all_reduce are ring, two_shot and one_shot; choose one with "
          "RINGSIDE_ALGORITHM",
          describe(call));
  require(call.count * size_of(call.type) <= one_sided::most_one_shot_bytes,
          "{}: one_shot takes at most {} bytes; use two_shot", describe(call),
          one_sided::most_one_shot_bytes);
  return Kernel::one_shot;
}

std::uint64_t bytes_to_peers(const Call& call, Kernel kernel, int rank, int size) {
  const std::uint64_t block = Chunks::even(call.count, size).size(rank),
                      peers = static_cast<std::uint64_t>(size) - 1;
  const auto elements = [&]() -> std::uint64_t {
    switch (kernel) {
      case Kernel::two_shot:  // peers load all chunks but its own, which it stores to them
      case Kernel::ring:
        return call.count - block + peers * block;
      case Kernel::one_shot:
        return peers * call.count;
      case Kernel::reduce_scatter:
        return call.count - block;
      case Kernel::all_gather:
        return peers * block;
      case Kernel::broadcast:
        return rank == call.root ? peers * call.count : 0;
    }
    return 0;
  };
  return elements() * size_of(call.type);
}

KernelLauncher::KernelLauncher(int size, int first_rank, int ranks, Seconds timeout)
    : size_(size), first_rank_(first_rank), ranks_(ranks), timeout_(timeout) {
  int resident = 0;
  check_cuda(resident_blocks(&resident), "computing how many blocks run at once");
  most_blocks_ = std::clamp(resident / ranks, 1, one_sided::most_blocks);
  std::vector<Schedule> schedules;
  for (int r = 0; r < size; ++r) schedules.push_back(ring_all_reduce(size, r));
  for (int r = 0; r < ranks; ++r) plans_[r] = pull_plan(schedules, first_rank + r);
  check_cuda(cudaMallocHost(reinterpret_cast<void**>(&words_), sizeof(HostWords) * ranks),
             "allocating pinned memory");
  for (int r = 0; r < ranks; ++r) new (words_ + r) HostWords;
}

KernelLauncher::~KernelLauncher() {
  free_pinned_memory(words_);
}

template <Element T>
Task<T> KernelLauncher::task_for(const Call& call, Kernel kernel) {
  Task<T> task;
  task.kernel = kernel;
  if (kernel == Kernel::one_shot &&
      (one_shots_ == std::numeric_limits<one_sided::Number>::max() || is_capturing(stream_)))
    task.kernel = Kernel::two_shot;
  if (task.kernel == Kernel::one_shot) task.number = ++one_shots_;
  task.size = size_;
  task.first_rank = first_rank_;
  task.ranks = ranks_;
  task.count = call.count;
  task.root = call.root;
  if (reduces(call.collective) && call.reduce == ReduceOp::avg)
    task.scale = 1.0f / static_cast<float>(size_);
  task.patience = static_cast<std::uint64_t>(timeout_.count() * 1e9);
  task.host = words_;
  if (task.kernel == Kernel::ring) std::copy(plans_.begin(), plans_.end(), task.plans);
  return task;
}

template <Element T>
void KernelLauncher::launch(const Call& call, const Task<T>& task) {
  // Each thread of a block gets at least one packet, or one pack. In a broadcast or one-shot a rank
  // moves the whole buffer, otherwise a chunk.
  const bool packets = task.kernel == Kernel::one_shot,
             whole = packets || task.kernel == Kernel::broadcast;
  const std::uint64_t per_block =
      std::uint64_t(threads_per_block) *
      (packets ? one_sided::Payload<T>::size : one_sided::Pack<T>::size);
  const auto ranks = static_cast<std::uint64_t>(size_);
  const std::uint64_t moved = whole ? call.count : (call.count + ranks - 1) / ranks;
  const int blocks = static_cast<int>(std::clamp<std::uint64_t>(
      (moved + per_block - 1) / per_block, 1, static_cast<std::uint64_t>(most_blocks_)));
  if (const auto result = cuda::launch(task, blocks, stream_); result != cudaSuccess)
    check_cuda(result, fmt::format("{}: launching {} blocks for each of {} ranks", describe(call),
                                   blocks, ranks_));
}

bool KernelLauncher::finish(const Call& call, const std::function<void()>& look) {
  await_stream(stream_, call, whose(), timeout_, look);
  bool gave_up = false;
  for (int r = 0; r < ranks_; ++r)
    gave_up = gave_up || HostMemory::load_acquire(words_[r].gave_up.value) != 0;
  if (!gave_up) return true;
  const std::string waits = stalls();
  require(waits.empty(), "{}: {} kernel gave up{}", describe(call), whose(), waits);
  return false;
}

void KernelLauncher::stop(std::span<one_sided::Flag* const> flags) noexcept {
  for (int r = 0; r < ranks_; ++r) HostMemory::store_release(words_[r].stop.value, 1);
  for (one_sided::Flag* const flag : flags)
    static_cast<void>(cudaMemcpyAsync(&flag->value, &words_[0].stop.value, sizeof flag->value,
                                      cudaMemcpyHostToDevice, stop_stream_));
  await_end(stream_);
}

std::string KernelLauncher::whose() const {
  return ranks_ == size_ ? "the" : fmt::format("rank {}'s", first_rank_);
}

std::string KernelLauncher::stalls() const {
  std::string waits;
  for (int r = 0; r < ranks_; ++r) {
    const one_sided::Stall& stall = words_[r].stall;
    if (const auto from = HostMemory::load_relaxed(stall.waiting_for); from != 0)
      waits += fmt::format("; rank {}, block {}, waited {} s for number {} of rank {}",
                           first_rank_ + r, HostMemory::load_relaxed(stall.block), timeout_.count(),
                           HostMemory::load_relaxed(stall.number), from - 1);
  }
  return waits;
}

template Task<float> KernelLauncher::task_for(const Call&, Kernel);
template Task<Fp16> KernelLauncher::task_for(const Call&, Kernel);
template Task<Bf16> KernelLauncher::task_for(const Call&, Kernel);
template void KernelLauncher::launch(const Call&, const Task<float>&);
template void KernelLauncher::launch(const Call&, const Task<Fp16>&);
template void KernelLauncher::launch(const Call&, const Task<Bf16>&);

}  // namespace ringside::collectives::cuda

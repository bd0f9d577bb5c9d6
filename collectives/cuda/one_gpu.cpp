// Ranks that are threads and share a GPU. Each thread posts its call; the last to arrive launches
// one kernel for all ranks, and all return when it is done.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/cuda.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/ring.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/kernels.hpp"
#include "collectives/cuda/pointer.hpp"
#include "collectives/execution/first_failure.hpp"
#include "collectives/half.hpp"
#include "collectives/proof/pull.hpp"

namespace ringside::collectives::cuda {

using one_sided::Mailbox;
using one_sided::most_ranks;

class OneGpuWorld {
 public:
  OneGpuWorld(int size, Seconds timeout, bool bare)
      : size_(size),
        timeout_(timeout),
        bare_(bare),
        device_(choose_device(0)),
        mailboxes_(sizeof(Mailbox) * static_cast<std::size_t>(size)),
        packets_(2 * most_one_shot_bytes * static_cast<std::size_t>(size)),
        posts_(static_cast<std::size_t>(size)) {
    check_cuda(cudaMemset(mailboxes_.data(), 0, mailboxes_.bytes()), "clearing the mailboxes");
    // cudaMemset may return before it is done.
    check_cuda(cudaDeviceSynchronize(), "clearing the mailboxes");
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&aborted_), 2 * sizeof *aborted_),
               "allocating pinned memory");
    aborted_[1] = 1;
  }
  ~OneGpuWorld() { free_pinned_memory(aborted_); }
  OneGpuWorld(const OneGpuWorld&) = delete;
  OneGpuWorld& operator=(const OneGpuWorld&) = delete;

  int size() const { return size_; }

  // Returns when the call is done on all ranks.
  void run(int rank, const Call& call, const void* input, void* output) {
    std::unique_lock lock(mutex_);
    failure_.throw_if_any();
    posts_[static_cast<std::size_t>(rank)] = {true, call, input, output};
    const std::uint64_t round = round_;
    const auto is_over = [&] { return round_ != round || (failure_ && !at_work_); };
    if (++arrived_ == size_) {
      finish_round(rank, lock);
    } else {
      // This deadline is for the ranks to arrive. The last of them has one for the GPU.
      if (!changed_.wait_for(lock, timeout_, [&] { return is_over() || arrived_ == size_; }))
        fail_all(missing_ranks(call));
      changed_.wait(lock, is_over);
    }
    if (round_ == round) failure_.throw_if_any();
  }

  void abort(int rank, const std::string& cause) noexcept {
    const std::lock_guard lock(mutex_);
    fail_all(RankFailure(rank, cause));
  }

 private:
  struct Post {
    bool here = false;
    Call call;
    const void* input = nullptr;
    void* output = nullptr;
  };

  // The caller holds the mutex.
  void fail_all(const RankFailure& failure) {
    failure_.keep(failure);
    failed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }

  // While this rank works with the GPU it does not hold the mutex: others may abort. The posts do
  // not change meanwhile, because all ranks have posted.
  void finish_round(int rank, std::unique_lock<std::mutex>& lock) {
    std::optional<std::string> error;
    at_work_ = true;
    lock.unlock();
    try {
      for (int r = 1; r < size_; ++r)
        check_call(round_ + 1, posts_[0].call, posts_[static_cast<std::size_t>(r)].call, 0, r);
      carry_out(posts_[0].call);
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    lock.lock();
    at_work_ = false;
    if (error) return fail_all(RankFailure(rank, *error));
    for (Post& post : posts_) post.here = false;
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  }

  RankFailure missing_ranks(const Call& call) const {
    std::vector<int> missing;
    for (int r = 0; r < size_; ++r)
      if (!posts_[static_cast<std::size_t>(r)].here) missing.push_back(r);
    return RankFailure(
        missing.empty() ? -1 : missing.front(),
        fmt::format(
            "{}: of the {} ranks that share this GPU, these did not call it within {} s: {}",
            describe(call), size_, timeout_.count(), fmt::join(missing, ", ")));
  }

  void carry_out(const Call& call) {
    // The last thread to arrive may have selected another device.
    check_cuda(cudaSetDevice(device_.number), "selecting the GPU");
    if (call.collective == Collective::barrier) return;
    switch (call.type) {
      case DataType::fp32:
        return carry_out_as<float>(call);
      case DataType::fp16:
        return carry_out_as<Fp16>(call);
      case DataType::bf16:
        return carry_out_as<Bf16>(call);
      default:
        fail("{}: the kernels support fp32, fp16 and bf16", describe(call));
    }
  }

  static Kernel kernel_for(const Call& call) {
    require(
        !reduces(call.collective) || call.reduce == ReduceOp::sum || call.reduce == ReduceOp::avg,
        "{}: the kernels support sum and avg", describe(call));
    switch (call.collective) {
      case Collective::reduce_scatter:
        return Kernel::reduce_scatter;
      case Collective::all_gather:
        return Kernel::all_gather;
      case Collective::broadcast:
        return Kernel::broadcast;
      case Collective::all_reduce:
        break;
      default:
        fail(
            "{}: the kernels support all_reduce, reduce_scatter, all_gather, broadcast and barrier",
            describe(call));
    }
    const std::string_view name = all_algorithms().at(call.algorithm).name;
    if (name == "ring") return Kernel::ring;
    if (name == "two_shot") return Kernel::two_shot;
    require(name == "one_shot",
            "{}: the kernels of all_reduce are ring, two_shot and one_shot; choose one with "
            "RINGSIDE_ALGORITHM",
            describe(call));
    require(call.count * size_of(call.type) <= most_one_shot_bytes,
            "{}: one_shot takes at most {} bytes; use two_shot", describe(call),
            most_one_shot_bytes);
    return Kernel::one_shot;
  }

  template <Element T>
  void carry_out_as(const Call& call) {
    Task<T> task = task_for<T>(call);
    if (call.count == 0) return;
    if (bare_) {
      check_cuda(launch_limit(task.buffers, size_, call.count, stream_),
                 fmt::format("{}: launching the bare kernel", describe(call)));
      return await_kernel(call);
    }
    int blocks = 0;
    check_cuda(blocks_for<T>(task.kernel, size_, &blocks),
               fmt::format("{}: computing how many blocks run at once", describe(call)));
    // Each thread of a block gets at least one pack. In a broadcast or one-shot a rank moves the
    // whole buffer, otherwise a chunk.
    const std::uint64_t per_block = std::uint64_t(threads_per_block) * one_sided::Pack<T>::size;
    const bool whole = task.kernel == Kernel::one_shot || task.kernel == Kernel::broadcast;
    const std::uint64_t moved = whole ? call.count
                                      : (call.count + static_cast<std::uint64_t>(size_) - 1) /
                                            static_cast<std::uint64_t>(size_);
    blocks = static_cast<int>(std::clamp<std::uint64_t>((moved + per_block - 1) / per_block, 1,
                                                        static_cast<std::uint64_t>(blocks)));

    check_cuda(
        launch(task, blocks, stream_),
        fmt::format("{}: launching {} blocks for each of {} ranks", describe(call), blocks, size_));
    const auto* const flag = &static_cast<Mailbox*>(mailboxes_.data())->aborted.value;
    check_cuda(cudaMemcpyAsync(aborted_, flag, sizeof *aborted_, cudaMemcpyDeviceToHost, stream_),
               fmt::format("{}: reading the abort flag", describe(call)));
    await_kernel(call);
    if (*aborted_ != 0) throw_stall(call);
  }

  bool is_done(const Call& call) {
    const cudaError_t done = cudaStreamQuery(stream_);
    if (done == cudaSuccess) return true;
    if (done != cudaErrorNotReady)
      check_cuda(done, fmt::format("{}: waiting for the kernel", describe(call)));
    static_cast<void>(cudaGetLastError());  // "not ready" is no error
    std::this_thread::yield();
    return false;
  }

  // Polls until the kernel is done, another rank fails, or the deadline. In the last two cases it
  // raises the abort flags, on another stream, so that blocks that wait for each other end.
  void await_kernel(const Call& call) {
    const Deadline deadline = Deadline::after(timeout_);
    while (!is_done(call)) {
      if (!failed_.load(std::memory_order_acquire) && !deadline.expired()) continue;
      raise_abort_flags();
      const Deadline grace = Deadline::after(Seconds(5));
      bool done = is_done(call);
      while (!done && !grace.expired()) done = is_done(call);
      if (!done) device_is_stuck = true;
      fail("{}: the GPU did not finish within {} s", describe(call), timeout_.count());
    }
  }

  void raise_abort_flags() {
    for (int r = 0; r < size_; ++r) {
      auto* const flag = &(static_cast<Mailbox*>(mailboxes_.data()) + r)->aborted.value;
      check_cuda(
          cudaMemcpyAsync(flag, aborted_ + 1, sizeof *flag, cudaMemcpyHostToDevice, abort_stream_),
          "raising an abort flag");
    }
  }

  template <Element T>
  Task<T> task_for(const Call& call) {
    Task<T> task;
    task.kernel = bare_ || (size_ == 1 && call.collective == Collective::all_reduce)
                      ? Kernel::two_shot
                      : kernel_for(call);
    task.ranks = size_;
    task.count = call.count;
    task.root = call.root;
    // A GPU polls a flag about twice in a microsecond, so this is some minutes. Only a bug in a
    // kernel can exhaust the budget.
    task.budget = 500'000'000;
    // Callers do not see the chunks of an all_reduce, so they can be aligned.
    const Chunks chunks = call.collective == Collective::all_reduce
                              ? Chunks::aligned(call.count, size_, sizeof(T))
                              : Chunks::even(call.count, size_);
    std::vector<Schedule> schedules;
    for (int r = 0; r < size_; ++r) schedules.push_back(ring_all_reduce(size_, r));
    auto& buffers = task.buffers;
    buffers.scale = reduces(call.collective) && call.reduce == ReduceOp::avg
                        ? 1.0f / static_cast<float>(size_)
                        : 1.0f;
    for (int r = 0; r < size_; ++r) {
      const Post& post = posts_[static_cast<std::size_t>(r)];
      const bool has_input = call.collective != Collective::broadcast;
      if (has_input && call.count > 0 &&
          !(call.collective == Collective::all_gather && chunks.size(r) == 0))
        require_device_memory(post.input, describe(call));
      if (call.count > 0 && !(call.collective == Collective::reduce_scatter && chunks.size(r) == 0))
        require_device_memory(post.output, describe(call));
      task.mailboxes[r] = static_cast<Mailbox*>(mailboxes_.data()) + r;
      buffers.input[r] = static_cast<const T*>(post.input);
      buffers.output[r] = static_cast<T*>(post.output);
      auto* const packets = static_cast<std::byte*>(packets_.data()) +
                            static_cast<std::size_t>(r) * 2 * most_one_shot_bytes;
      buffers.packet[r] = reinterpret_cast<T*>(packets + round_ % 2 * most_one_shot_bytes);
      buffers.chunks[r] = {chunks.begin(r), chunks.begin(r + 1)};
      const bool own_begin = call.collective == Collective::all_gather ||
                             call.collective == Collective::reduce_scatter;
      buffers.packs = buffers.packs && on_16_bytes(post.input) && on_16_bytes(post.output) &&
                      (!own_begin || chunks.begin(r) % one_sided::Pack<T>::size == 0);
      if (task.kernel == Kernel::ring) task.plans[r] = pull_plan(schedules, r);
    }
    return task;
  }

  // Reports which ranks waited for which, as the kernel has written it into the mailboxes.
  [[noreturn]] void throw_stall(const Call& call) {
    std::string waits;
    for (int r = 0; r < size_; ++r) {
      one_sided::Stall stall;
      check_cuda(cudaMemcpy(&stall, &(static_cast<Mailbox*>(mailboxes_.data()) + r)->stall,
                            sizeof stall, cudaMemcpyDeviceToHost),
                 "reading a mailbox");
      if (stall.waiting_for != 0)
        waits += fmt::format("; rank {}, block {}, waited for number {} of rank {}", r, stall.block,
                             stall.number, stall.waiting_for - 1);
    }
    fail("{}: the kernel gave up waiting{}", describe(call), waits);
  }

  const int size_;
  const Seconds timeout_;
  const bool bare_;  // measures the bandwidth limit: no rank waits for another
  const Device device_;
  DeviceBuffer mailboxes_;  // [rank]
  DeviceBuffer packets_;    // [rank][2]
  const CudaStream stream_{"making a stream"}, abort_stream_{"making a stream"};
  // Pinned: [0] a copy of rank 0's abort flag after the call, [1] a raised flag.
  one_sided::Number* aborted_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Post> posts_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  bool at_work_ = false;  // the last rank to arrive carries out the call
  FirstFailure failure_;
  std::atomic<bool> failed_ = false;  // whether there is one, for the rank that waits for the GPU
};

namespace {

class OneGpuBackend final : public Backend {
 public:
  OneGpuBackend(std::shared_ptr<OneGpuWorld> world, int rank)
      : world_(std::move(world)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  std::string name() const override { return "cuda_kernels"; }
  Traffic traffic() const override { return {}; }  // no messages: peers read and write memory
  void run(const Call& call, const void* input, void* output) override {
    world_->run(rank_, call, input, output);
  }
  void abort(const std::string& cause) noexcept override { world_->abort(rank_, cause); }
  void interrupt(const std::string& cause) noexcept override { world_->abort(rank_, cause); }

 private:
  std::shared_ptr<OneGpuWorld> world_;
  int rank_;
};

}  // namespace

std::shared_ptr<OneGpuWorld> make_one_gpu_world(int size, Seconds timeout) {
  require(size >= 1 && size <= most_ranks, "1 to {} ranks can share a GPU, not {}", most_ranks,
          size);
  return std::make_shared<OneGpuWorld>(size, timeout, false);
}

std::shared_ptr<OneGpuWorld> make_bare_gpu_world(int size) {
  require(size >= 1 && size <= most_ranks, "1 to {} ranks can share a GPU, not {}", most_ranks,
          size);
  return std::make_shared<OneGpuWorld>(size, Seconds(120), true);
}

std::unique_ptr<Backend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld> world, int rank) {
  require(rank >= 0 && rank < world->size(), "the rank must be one of 0 to {}, not {}",
          world->size() - 1, rank);
  return std::make_unique<OneGpuBackend>(std::move(world), rank);
}

}  // namespace ringside::collectives::cuda

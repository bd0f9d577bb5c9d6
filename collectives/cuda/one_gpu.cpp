// Ranks that are threads and share a GPU. Each thread posts its call; the last to arrive launches
// one kernel for all ranks, on a stream that they share. Then all return, or wait for the stream.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/cuda.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/kernel_launcher.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"

namespace ringside::collectives::cuda {

using one_sided::Mailbox;
using one_sided::most_ranks;
using one_sided::PacketBox;

class OneGpuWorld {
 public:
  OneGpuWorld(int size, Seconds timeout, bool bare)
      : size_(size),
        timeout_(timeout),
        bare_(bare),
        device_(choose_device(0)),
        mailboxes_(sizeof(Mailbox) * size),
        boxes_(sizeof(PacketBox) * size),
        launcher_(size, 0, size, timeout),
        posts_(size) {
    check_cuda(cudaMemset(mailboxes_.data(), 0, mailboxes_.bytes()), "clearing the mailboxes");
    check_cuda(cudaMemset(boxes_.data(), 0, boxes_.bytes()), "clearing the packets");
    // cudaMemset may return before it is done.
    check_cuda(cudaDeviceSynchronize(), "clearing the mailboxes");
  }

  int size() const { return size_; }
  cudaStream_t stream() const { return launcher_.stream(); }

  // Returns when all ranks have posted the call and it is on the stream.
  void enqueue(int rank, const Call& call, const void* input, void* output) {
    std::unique_lock lock(mutex_);
    failure_.throw_if_any();
    posts_[rank] = {true, call, input, output};
    const std::uint64_t round = round_;
    const auto is_over = [&] { return round_ != round || (failure_ && !at_work_); };
    if (++arrived_ == size_) {
      launch_round(rank, lock);
    } else {
      lock.unlock();
      spin(round);
      lock.lock();
      if (!changed_.wait_for(lock, timeout_, [&] { return is_over() || arrived_ == size_; }))
        fail_all(missing_ranks(call));
      changed_.wait(lock, is_over);
    }
    if (round_ == round) failure_.throw_if_any();
  }

  // Returns when the stream is done; `last` is the latest call on it.
  void finish(int rank, const Call& last) {
    try {
      check_cuda(cudaSetDevice(device_.number), "selecting the GPU");
      const bool done = launcher_.finish(last, [this] {
        if (failure_) fail("another rank has failed");
      });
      require(done, "{}: the kernel was told to stop", describe(last));
    } catch (const std::exception& error) {
      launcher_.stop();
      const std::lock_guard lock(mutex_);
      fail_all(RankFailure(rank, error.what()));
      failure_.throw_if_any();
    }
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
    changed_.notify_all();
  }

  // To sleep and be woken takes longer than a small call.
  void spin(std::uint64_t round) const {
    constexpr int polls_without_sleep = 2000;
    for (int polls = 0; polls < polls_without_sleep && round_ == round && !failure_; ++polls)
      std::this_thread::yield();
  }

  // While this rank launches it does not hold the mutex: others may abort. The posts do not change
  // meanwhile, because all ranks have posted.
  void launch_round(int rank, std::unique_lock<std::mutex>& lock) {
    std::optional<std::string> error;
    at_work_ = true;
    lock.unlock();
    try {
      for (int r = 1; r < size_; ++r) check_call(round_ + 1, posts_[0].call, posts_[r].call, 0, r);
      launch(posts_[0].call);
    } catch (const std::exception& failure) {
      error = failure.what();
      launcher_.stop();
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
      if (!posts_[r].here) missing.push_back(r);
    return RankFailure(
        missing.empty() ? -1 : missing.front(),
        fmt::format(
            "{}: of the {} ranks that share this GPU, these did not call it within {} s: {}",
            describe(call), size_, timeout_.count(), fmt::join(missing, ", ")));
  }

  void launch(const Call& call) {
    // The last thread to arrive may have selected another device.
    check_cuda(cudaSetDevice(device_.number), "selecting the GPU");
    if (call.collective == Collective::barrier) return;
    require_kernel(call);
    const bool alone = size_ == 1 && call.collective == Collective::all_reduce;
    const Kernel kernel = bare_ || alone ? Kernel::two_shot : kernel_for(call);
    if (call.count == 0) return;
    for (int r = 0; r < size_; ++r)
      known_.require_device_buffers(call, r, size_, posts_[r].input, posts_[r].output);
    with_element_of(call, [&]<class T>(T) { launch_as<T>(call, kernel); });
  }

  template <Element T>
  void launch_as(const Call& call, Kernel kernel) {
    Task<T> task = launcher_.task_for<T>(call, kernel);
    for (int r = 0; r < size_; ++r) {
      const Post& post = posts_[r];
      task.mailboxes[r] = static_cast<Mailbox*>(mailboxes_.data()) + r;
      task.boxes[r] = static_cast<PacketBox*>(boxes_.data()) + r;
      task.buffers.input[r] = static_cast<const T*>(post.input);
      task.buffers.output[r] = static_cast<T*>(post.output);
    }
    if (bare_)
      check_cuda(launch_limit(task.buffers, size_, call.count, size_ * launcher_.most_blocks(),
                              launcher_.stream()),
                 "launching the bare kernel");
    else
      launcher_.launch(call, task);
  }

  const int size_;
  const Seconds timeout_;
  const bool bare_;  // measures the bandwidth limit: no rank waits for another
  const Device device_;
  DeviceBuffer mailboxes_, boxes_;  // [rank]
  KernelLauncher launcher_;
  KnownBuffers known_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Post> posts_;
  int arrived_ = 0;
  std::atomic<std::uint64_t> round_ = 0;  // ranks that spin read it without the mutex
  bool at_work_ = false;                  // the last rank to arrive launches
  FirstCause<RankFailure> failure_;
};

namespace {

class OneGpuBackend final : public DeviceBackend {
 public:
  OneGpuBackend(std::shared_ptr<OneGpuWorld> world, int rank)
      : world_(std::move(world)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  std::string name() const override { return "cuda_kernels"; }
  void enqueue(const Call& call, const void* input, void* output) override {
    world_->enqueue(rank_, call, input, output);
    last_ = call;
    if (size() > 1 && call.collective != Collective::barrier)
      traffic_.payload_bytes_sent += bytes_to_peers(call, kernel_for(call), rank_, size());
  }
  void finish() override { world_->finish(rank_, last_); }
  void* stream() override { return world_->stream(); }
  void abort(const std::string& cause) noexcept override { world_->abort(rank_, cause); }
  void interrupt(const std::string& cause) noexcept override { world_->abort(rank_, cause); }

 private:
  std::shared_ptr<OneGpuWorld> world_;
  int rank_;
  Call last_;
};

}  // namespace

std::shared_ptr<OneGpuWorld> make_one_gpu_world(int size, Seconds timeout, bool bare) {
  require(size >= 1 && size <= most_ranks, "1 to {} ranks can share a GPU, not {}", most_ranks,
          size);
  return std::make_shared<OneGpuWorld>(size, timeout, bare);
}

std::unique_ptr<DeviceBackend> make_one_gpu_backend(std::shared_ptr<OneGpuWorld> world, int rank) {
  require(rank >= 0 && rank < world->size(), "the rank must be one of 0 to {}, not {}",
          world->size() - 1, rank);
  return std::make_unique<OneGpuBackend>(std::move(world), rank);
}

}  // namespace ringside::collectives::cuda

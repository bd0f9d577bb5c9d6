// The backend cuda_ipc: checks a call, carries it out by one of two ways, and keeps the first
// failure.
#include "base/cuda.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/ipc/rank.hpp"
#include "collectives/cuda/kernel_launcher.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/group_options.hpp"

namespace ringside::collectives::cuda {
namespace {

class IpcBackend final : public DeviceBackend {
 public:
  IpcBackend(ProcessGroup hosts, int local_rank, const CudaIpcOptions& options)
      : rank_(std::move(hosts), local_rank, options) {
    require(size() <= one_sided::most_ranks, "cuda_ipc is for 1 to {} ranks, not {}",
            one_sided::most_ranks, size());
    require(options.all_reduce == "auto" || is_cuda_ipc_algorithm(options.all_reduce),
            "cuda_ipc has no all_reduce named '{}'; there are auto, ring, two_shot and one_shot",
            options.all_reduce);
    path_ = rank_.placement.why_copies() ? make_copies(rank_) : make_spinning(rank_);
  }

  int rank() const override { return rank_.rank(); }
  int size() const override { return rank_.size(); }
  std::string name() const override {
    const auto& why = rank_.placement.why_copies();
    return why ? fmt::format("cuda_ipc by copies ({})", *why) : "cuda_ipc";
  }

  void enqueue(const Call& call, const void* input, void* output) override {
    last_ = call;
    or_fail_for_good([&] {
      check(call, input, output);
      traffic_.payload_bytes_sent += path_->enqueue(call, input, output);
    });
  }

  void finish() override {
    or_fail_for_good([&] { path_->finish(last_); });
  }

  void* stream() override { return path_->stream(); }

  void abort(const std::string& cause) noexcept override {
    rank_.group.abort(cause);
    fail_for_good(RankFailure(rank(), cause));
  }

  // run() waits for the hosts of the peers, or for this rank's GPU.
  void interrupt(const std::string& cause) noexcept override { rank_.interrupt(cause); }

 private:
  void check(const Call& call, const void* input, const void* output) {
    if (call.collective == Collective::barrier) return;
    require_kernel(call);
    if (call.count > 0) known_.require_device_buffers(call, rank(), size(), input, output);
  }

  void or_fail_for_good(const auto& body) {
    failure_.throw_if_any();
    try {
      if (const auto result = cudaSetDevice(rank_.device.number); result != cudaSuccess)
        check_cuda(result, describe(last_));
      body();
    } catch (const RankFailure& failure) {
      rank_.group.abort(failure.cause);
      fail_for_good(failure);
      throw;
    } catch (const std::exception& error) {
      rank_.group.abort(error.what());
      throw fail_for_good(RankFailure(rank(), error.what()));
    }
  }

  // After a failure a peer may be gone: streams may wait for its events for ever, and it may not
  // have closed this rank's arena.
  const RankFailure& fail_for_good(const RankFailure& failure) {
    rank_.failed = true;
    static_cast<void>(cudaSetDevice(rank_.device.number));  // abort() comes from any thread
    path_->give_up();
    return failure_.keep(failure);
  }

  IpcRank rank_;
  std::unique_ptr<IpcPath> path_;
  Call last_;
  KnownBuffers known_;
  FirstCause<RankFailure> failure_;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cuda_ipc_backend(ProcessGroup& meeting, int local_rank,
                                                     const CudaIpcOptions& options) {
  return std::make_unique<IpcBackend>(meeting.split(0, meeting.rank()), local_rank, options);
}

std::unique_ptr<DeviceBackend> make_cuda_ipc_backend(const RankInfo& rank_info,
                                                     const CudaIpcOptions& options) {
  choose_device(rank_info.local_rank);  // throw without a GPU before waiting for other ranks
  auto group_options = group_options_from_environment();
  group_options.executor.timeout = options.timeout;
  return std::make_unique<IpcBackend>(ProcessGroup::over("shm", rank_info, group_options),
                                      rank_info.local_rank, options);
}

}  // namespace ringside::collectives::cuda

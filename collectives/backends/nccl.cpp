// NCCL behind the Backend seam. Its communicator is made non-blocking, so that every wait is a loop
// of ours: it looks whether NCCL has failed, whether the GPU is done, whether somebody interrupts,
// and at the clock.
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <nccl.h>
#include <unistd.h>

#include "base/cuda.hpp"
#include "base/environment.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/pointer.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives::cuda {
namespace {

constexpr int version_with_shared_gpus =
    23000;  // from here on NCCL_MULTI_RANK_GPU_ENABLE=1 lets ranks share a GPU

int version_number() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::fp32:
      return ncclFloat32;
    case DataType::fp64:
      return ncclFloat64;
    case DataType::fp16:
      return ncclFloat16;
    case DataType::bf16:
      return ncclBfloat16;
    case DataType::int32:
      return ncclInt32;
    case DataType::int64:
      return ncclInt64;
    case DataType::uint8:
      return ncclUint8;
  }
  fail("NCCL has no name for {}", name_of(type));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::product:
      return ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
  }
  fail("NCCL has no name for {}", name_of(op));
}

// What the ranks tell each other before NCCL is asked for anything.
struct Introduction {
  char host[64] = {};
  char bus[32] = {};
  ncclUniqueId id{};  // rank 0's counts
};

Introduction introduce(const Device& device, int rank) {
  Introduction mine;
  require(::gethostname(mine.host, sizeof mine.host - 1) == 0,
          "this host does not know its name: {}", std::strerror(errno));
  std::strncpy(mine.bus, device.bus.c_str(), sizeof mine.bus - 1);
  if (rank != 0) return mine;
  const ncclResult_t result = ncclGetUniqueId(&mine.id);
  require(result == ncclSuccess,
          "NCCL {} cannot make an id for the job: {}; NCCL_DEBUG=WARN tells more", nccl_version(),
          ncclGetErrorString(result));
  return mine;
}

// NCCL itself would say "Duplicate GPU detected" to one of the two, or hang.
void check_nobody_shares(const std::vector<Introduction>& all) {
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (std::strcmp(all[a].host, all[b].host) != 0 || std::strcmp(all[a].bus, all[b].bus) != 0)
        continue;
      if (version_number() >= version_with_shared_gpus) {
        const auto enabled = environment("NCCL_MULTI_RANK_GPU_ENABLE");
        require(enabled && *enabled != "0",
                "ranks {} and {} share GPU {} of {}: NCCL {} allows it with "
                "NCCL_MULTI_RANK_GPU_ENABLE=1 only; set it, or start one rank for each GPU",
                a, b, all[a].bus, all[a].host, nccl_version());
        continue;
      }
      fail(
          "ranks {} and {} share GPU {} of {}, which NCCL {} does not allow: start one rank for "
          "each GPU, or take NCCL 2.30 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1",
          a, b, all[a].bus, all[a].host, nccl_version());
    }
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(const RankInfo& rank_info, Seconds timeout)
      : rank_(rank_info.rank),
        size_(rank_info.size),
        timeout_(timeout),
        device_(choose_device(rank_info.local_rank)) {
    ProcessGroup meeting = ProcessGroup::over_tcp(rank_info);
    Introduction mine = introduce(device_, rank_);
    std::vector<Introduction> all(static_cast<std::size_t>(size_));
    meeting.all_gather(&mine, all.data(), sizeof mine * all.size(), DataType::uint8, "nccl");
    check_nobody_shares(all);

    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
               fmt::format("making a stream for rank {}", rank_));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      finish(ncclCommInitRankConfig(&communicator_, size_, all[0].id, rank_, &config),
             "connecting");
      meeting.barrier();  // nobody leaves before everybody is connected
    } catch (...) {
      close();
      throw;
    }
  }
  ~NcclBackend() override {
    if (communicator_ && !broken_) leave();
    close();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "nccl"; }
  Traffic traffic() const override { return {}; }  // it does not tell

  void run(const Call& call, const void* input, void* output) override {
    if (broken_) throw *broken_;
    const std::string what = describe(call);
    try {
      check_cuda(cudaSetDevice(device_.number), what);
      finish(start(call, input, output), what);
      await_stream(what);
    } catch (const std::exception& error) {
      broken_ = RankFailure(rank_, error.what());
      close();  // kernels that wait for a peer end; the peers find their connections closed
      throw *broken_;
    }
  }

  void abort(const std::string& cause) noexcept override {
    if (!broken_) broken_ = RankFailure(rank_, cause);
    close();
  }

  void interrupt(const std::string& cause) noexcept override {
    const std::lock_guard lock(interruption_mutex_);
    if (!interruption_) interruption_ = cause;
    interrupted_.store(true, std::memory_order_release);
  }

 private:
  // Lengths are checked, because NCCL knows blocks of equal length only.
  std::size_t block_of(const Call& call) const {
    require(call.count % static_cast<std::uint64_t>(size_) == 0,
            "{}: NCCL shares out in blocks of equal length, and {} ranks do not divide {}",
            describe(call), size_, call.count);
    return call.count / static_cast<std::uint64_t>(size_);
  }

  ncclResult_t start(const Call& call, const void* input, void* output) {
    const auto type = nccl_type(call.type);
    if (call.collective == Collective::barrier)
      return ncclAllReduce(token(), token(), 1, ncclInt32, ncclSum, communicator_, stream_);
    const bool writes = call.collective != Collective::reduce || rank_ == call.root;
    if (call.count > 0 && writes) require_device_memory(output, describe(call));
    if (call.count > 0 && call.collective != Collective::broadcast)
      require_device_memory(input, describe(call));
    switch (call.collective) {
      case Collective::all_reduce:
        return ncclAllReduce(input, output, call.count, type, nccl_op(call.reduce), communicator_,
                             stream_);
      case Collective::reduce_scatter:
        return ncclReduceScatter(input, output, block_of(call), type, nccl_op(call.reduce),
                                 communicator_, stream_);
      case Collective::all_gather:
        return ncclAllGather(input, output, block_of(call), type, communicator_, stream_);
      case Collective::broadcast:
        return ncclBroadcast(output, output, call.count, type, call.root, communicator_, stream_);
      case Collective::reduce:
        return ncclReduce(input, output, call.count, type, nccl_op(call.reduce), call.root,
                          communicator_, stream_);
      default:
        fail(
            "{}: the nccl backend has all_reduce, reduce_scatter, all_gather, broadcast, reduce "
            "and barrier",
            describe(call));
    }
  }

  // What a barrier adds up: four bytes of GPU memory, whatever they hold.
  void* token() {
    if (!token_) {
      token_.emplace(sizeof(std::int32_t));
      const std::int32_t zero = 0;
      token_->copy_from(&zero, sizeof zero);
    }
    return token_->data();
  }

  // A non-blocking communicator says ncclInProgress until the call is under way on the GPU.
  void finish(ncclResult_t result, const std::string& what) {
    const Deadline deadline = Deadline::after(timeout_);
    for (int looks = 0; result == ncclInProgress; ++looks) {
      pause(looks, deadline, what);
      ncclResult_t state = ncclSuccess;
      result = ncclCommGetAsyncError(communicator_, &state);
      if (result == ncclSuccess) result = state;
    }
    if (result != ncclSuccess) tell(result, what);
  }

  void await_stream(const std::string& what) {
    const Deadline deadline = Deadline::after(timeout_);
    for (int looks = 0;; ++looks) {
      const cudaError_t done = cudaStreamQuery(stream_);
      if (done == cudaSuccess) return;
      if (done != cudaErrorNotReady) check_cuda(done, what);
      static_cast<void>(cudaGetLastError());  // "not ready" is no error
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
      if (asked != ncclSuccess) tell(asked, what);
      if (state != ncclSuccess && state != ncclInProgress) tell(state, what);
      pause(looks, deadline, what);
    }
  }

  // Between two looks: nothing at first, for calls that take microseconds.
  void pause(int looks, const Deadline& deadline, const std::string& what) {
    constexpr int without_sleep = 2000;
    if (interrupted_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(interruption_mutex_);
      fail("{}", *interruption_);
    }
    require(!deadline.expired(),
            "{}: NCCL {} on rank {} of {} has made no end of it within {} s; is a rank gone, or in "
            "another call?",
            what, nccl_version(), rank_, size_, timeout_.count());
    if (looks >= without_sleep) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  [[noreturn]] void tell(ncclResult_t result, const std::string& what) {
    const char* const last = ncclGetLastError(communicator_);
    fail("{}: NCCL {} on rank {} of {}, GPU {}: {}{}{}; NCCL_DEBUG=WARN tells more", what,
         nccl_version(), rank_, size_, device_.bus, ncclGetErrorString(result),
         last && *last ? ": " : "", last ? last : "");
  }

  // Waits until peers have what this rank has sent: its own calls may be done before.
  void leave() noexcept {
    try {
      finish(ncclCommFinalize(communicator_), "leaving");
      static_cast<void>(ncclCommDestroy(communicator_));
      communicator_ = nullptr;
    } catch (const std::exception&) {  // a peer is gone, and this rank has no call left that could
                                       // say so: close() aborts
    }
  }

  // Ends what is under way.
  void close() noexcept {
    if (communicator_) static_cast<void>(ncclCommAbort(communicator_));
    communicator_ = nullptr;
    if (stream_) static_cast<void>(cudaStreamDestroy(stream_));
    stream_ = nullptr;
  }

  const int rank_, size_;
  const Seconds timeout_;
  const Device device_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::optional<DeviceBuffer> token_;
  std::optional<RankFailure> broken_;
  std::atomic<bool> interrupted_ = false;
  std::mutex interruption_mutex_;
  std::optional<std::string> interruption_;
};

}  // namespace

bool nccl_is_here() {
  return true;
}

std::string nccl_version() {
  const int version = version_number();  // 22809 is 2.28.9
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Backend> make_nccl_backend(const RankInfo& rank_info, Seconds timeout) {
  return std::make_unique<NcclBackend>(rank_info, timeout);
}

}  // namespace ringside::collectives::cuda

// NCCL behind the Backend seam.
//
// NCCL is opened at run time and not linked (base/system/shared_library.hpp): a build needs only
// its header. The communicator is non-blocking, so every wait is a loop of ours, unless the caller
// asks for NCCL's own speed: for a non-blocking one NCCL starts a thread with each call. The loop
// checks whether NCCL has failed, whether the GPU is done, whether another thread interrupts, and
// the deadline.
#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include <nccl.h>
#include <unistd.h>

#include "base/cuda.hpp"
#include "base/environment.hpp"
#include "base/system/shared_library.hpp"
#include "collectives/backends/nccl.hpp"
#include "collectives/backends/nccl_choice.hpp"
#include "collectives/bootstrap/rank_location.hpp"
#include "collectives/calls/values_of_all_ranks.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/pointer.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"

namespace ringside::collectives {
namespace {

using cuda::Device;
using cuda::DeviceBuffer;

std::string to_text(int version) {  // 22809 is 2.28.9
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// The oldest NCCL that has everything used here: non-blocking communicators that can be finalized.
// An older library reads as much of a newer header's ncclConfig_t as it knows.
constexpr int oldest_version = 21800;

// The functions of NCCL that are used.
class Nccl {
  int checked_version() const {
    int found = 0;
    const bool known = find<decltype(ncclGetVersion)>("ncclGetVersion")(&found) == ncclSuccess;
    require(known && found >= oldest_version,
            "expected libnccl.so.2 to be NCCL {} or newer, got {}: install a newer NCCL",
            to_text(oldest_version), to_text(found));
    return found;
  }
  const SharedLibrary library_{"NCCL", "libnccl.so.2", RINGSIDE_CUDA_LIBRARIES};

 public:
  template <class Function>
  Function* find(const char* name) const {
    Function* function = nullptr;
    library_.find(function, name);
    return function;
  }
  const int version = checked_version();
  decltype(ncclGetUniqueId)* get_unique_id = find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(ncclGetErrorString)* get_error_string =
      find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(ncclGetLastError)* get_last_error = find<decltype(ncclGetLastError)>("ncclGetLastError");
  decltype(ncclCommInitRankConfig)* comm_init_rank_config =
      find<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(ncclCommGetAsyncError)* comm_get_async_error =
      find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(ncclCommFinalize)* comm_finalize = find<decltype(ncclCommFinalize)>("ncclCommFinalize");
  decltype(ncclCommDestroy)* comm_destroy = find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  decltype(ncclCommAbort)* comm_abort = find<decltype(ncclCommAbort)>("ncclCommAbort");
  decltype(ncclAllReduce)* all_reduce = find<decltype(ncclAllReduce)>("ncclAllReduce");
  decltype(ncclReduceScatter)* reduce_scatter =
      find<decltype(ncclReduceScatter)>("ncclReduceScatter");
  decltype(ncclAllGather)* all_gather = find<decltype(ncclAllGather)>("ncclAllGather");
  decltype(ncclBroadcast)* broadcast = find<decltype(ncclBroadcast)>("ncclBroadcast");
  decltype(ncclReduce)* reduce = find<decltype(ncclReduce)>("ncclReduce");
  decltype(ncclGroupStart)* group_start = find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(ncclGroupEnd)* group_end = find<decltype(ncclGroupEnd)>("ncclGroupEnd");
};

// Opened by the first call. Throws Error if the library is missing or too old.
const Nccl& nccl() {
  static const Nccl the_library;
  return the_library;
}

// From this version on, NCCL_MULTI_RANK_GPU_ENABLE=1 lets ranks share a GPU.
constexpr int version_with_shared_gpus = 23000;

// From these on, memory can be registered, and windows be symmetric.
constexpr int version_with_registration = 21900;
#define version_with_windows 22700

void require_version_for(NcclMemory memory) {
  if (memory == NcclMemory::plain) return;
  const bool symmetric = memory == NcclMemory::symmetric;
  const int needed = symmetric ? version_with_windows : version_with_registration;
  const int found = std::min(nccl().version, NCCL_VERSION_CODE);
  require(
      found >= needed,
      "{} needs NCCL {} or newer, in the library and in the header of the build, and one of them "
      "is {}: install a newer one, or measure nccl alone",
      symmetric ? "nccl_symmetric" : "nccl_registered", to_text(needed), to_text(found));
}

// In the order of DataType and of ReduceOp, as far as NCCL has them.
constexpr ncclDataType_t nccl_types[] = {ncclFloat32, ncclFloat64,  ncclInt32, ncclInt64,
                                         ncclFloat16, ncclBfloat16, ncclUint8, ncclInt8};
constexpr ncclRedOp_t nccl_ops[] = {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg};

// What the ranks tell each other before they call NCCL.
struct Introduction {
  RankLocation location;
  ncclUniqueId id{};  // only rank 0 sets it
};

Introduction introduce(const Device& device, int rank) {
  Introduction mine{.location = location_of_this_process(device.place)};
  if (rank != 0) return mine;
  const ncclResult_t result = nccl().get_unique_id(&mine.id);
  require(result == ncclSuccess,
          "NCCL {} cannot make an id for the job: {}; NCCL_DEBUG=WARN prints details",
          nccl_version(), nccl().get_error_string(result));
  return mine;
}

// NCCL itself would report "Duplicate GPU detected" on one of the two ranks, or hang.
void check_no_shared_gpu(const std::vector<Introduction>& all) {
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      const RankLocation& at = all[a].location;
      if (!on_one_gpu(at, all[b].location)) continue;
      if (nccl().version >= version_with_shared_gpus) {
        const auto enabled = environment("NCCL_MULTI_RANK_GPU_ENABLE");
        require(enabled && *enabled != "0",
                "ranks {} and {} share GPU {} of {}: NCCL {} allows it with "
                "NCCL_MULTI_RANK_GPU_ENABLE=1 only; set it, or start one rank for each GPU",
                a, b, at.gpu, at.host, nccl_version());
        continue;
      }
      fail(
          "ranks {} and {} share GPU {} of {}, which NCCL {} does not allow: start one rank for "
          "each GPU, or use NCCL 2.30 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1",
          a, b, at.gpu, at.host, nccl_version());
    }
}

class NcclBackend final : public cuda::DeviceBackend {
 public:
  NcclBackend(ProcessGroup& meeting, int local_rank, const NcclOptions& options)
      : rank_(meeting.rank()),
        size_(meeting.size()),
        timeout_(options.timeout),
        memory_(options.memory),
        device_(cuda::choose_device(local_rank)) {
    nccl();  // throws if the library is missing, before any rank waits for this one
    require_version_for(memory_);
    if (options.tells_choice) NcclChoice::offer();
    const auto all = values_of_all_ranks(meeting, introduce(device_, rank_), "nccl");
    check_no_shared_gpu(all);

    stream_.emplace(fmt::format("making a stream for rank {}", rank_));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = options.blocking ? 1 : 0;
    try {
      await(nccl().comm_init_rank_config(&communicator_, size_, all[0].id, rank_, &config),
            [] { return "connecting"; });
      meeting.barrier();  // the meeting ends when all ranks are connected
    } catch (...) {
      close();
      throw;
    }
  }
  ~NcclBackend() override {
    if (communicator_ && !failure_) leave();
    close();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "nccl"; }

  void enqueue(const Call& call, const void* input, void* output) override {
    last_ = call;
    or_close([&] { await(start(call, input, output), [&] { return describe(call); }); });
  }

  void enqueue_group(const std::function<void()>& enqueue_all) override {
    const auto what = [&] { return "a group of calls, the last " + describe(last_); };
    or_close([&] { await(nccl().group_start(), what); });
    enqueue_all();
    or_close([&] { await(nccl().group_end(), what); });
  }

  void finish() override {
    or_close([&] { await_stream(); });
  }

  std::string choice_of(const std::function<void()>& body) override {
    const NcclChoice choice;
    body();
    return choice.of_last_call();
  }

  void* stream() override { return *stream_; }

  DeviceBuffer allocate(std::size_t bytes) override {
    if (memory_ == NcclMemory::plain) return DeviceBuffer(bytes);
    void *data = nullptr, *handle = nullptr;
    or_close([&] {
      const auto what = [&] { return fmt::format("registering {} bytes of NCCL's memory", bytes); };
      await(nccl().find<decltype(ncclMemAlloc)>("ncclMemAlloc")(&data,
                                                                std::max<std::size_t>(bytes, 1)),
            what);
      if (memory_ == NcclMemory::registered) {
        const auto register_memory = nccl().find<decltype(ncclCommRegister)>("ncclCommRegister");
        return await(register_memory(communicator_, data, bytes, &handle), what);
      }
#if NCCL_VERSION_CODE >= version_with_windows
      const auto register_window =
          nccl().find<decltype(ncclCommWindowRegister)>("ncclCommWindowRegister");
      ncclWindow_t window = nullptr;
      await(register_window(communicator_, data, bytes, &window, NCCL_WIN_COLL_SYMMETRIC), what);
      handle = window;
#endif
    });
    return DeviceBuffer(data, bytes, [=, this] { give_back(data, handle); });
  }

  void abort(const std::string& cause) noexcept override {
    failure_.keep(RankFailure(rank_, cause));
    close();
  }

  void interrupt(const std::string& cause) noexcept override {
    interruption_.keep(Error(cause));
  }

 private:
  void or_close(const auto& body) {
    failure_.throw_if_any();
    try {
      if (const auto result = cudaSetDevice(device_.number); result != cudaSuccess)
        check_cuda(result, describe(last_));
      body();
    } catch (const std::exception& error) {
      close();  // ends kernels that wait for a peer; the peers see closed connections
      throw failure_.keep(RankFailure(rank_, error.what()));
    }
  }

  // NCCL says nothing of use here: a buffer goes at the end of a measurement, or after a failure.
  void give_back(void* data, void* handle) noexcept {
    if (communicator_ && memory_ == NcclMemory::registered)
      nccl().find<decltype(ncclCommDeregister)>("ncclCommDeregister")(communicator_, handle);
#if NCCL_VERSION_CODE >= version_with_windows
    if (communicator_ && memory_ == NcclMemory::symmetric)
      nccl().find<decltype(ncclCommWindowDeregister)>("ncclCommWindowDeregister")(
          communicator_, static_cast<ncclWindow_t>(handle));
#endif
    nccl().find<decltype(ncclMemFree)>("ncclMemFree")(data);
  }

  // The length of a rank's block. NCCL supports only blocks of equal length.
  std::size_t block_of(const Call& call) const {
    require(call.count % size_ == 0,
            "{}: NCCL needs blocks of equal length, but {} elements cannot be divided by {} ranks",
            describe(call), call.count, size_);
    return call.count / size_;
  }

  ncclResult_t start(const Call& call, const void* input, void* output) {
    require(static_cast<std::size_t>(call.type) < std::size(nccl_types),
            "{}: NCCL has no type for {}", describe(call), name_of(call.type));
    require(static_cast<std::size_t>(call.reduce) < std::size(nccl_ops), "{}: NCCL has no {}",
            describe(call), name_of(call.reduce));
    const ncclDataType_t type = nccl_types[static_cast<int>(call.type)];
    const ncclRedOp_t op = nccl_ops[static_cast<int>(call.reduce)];
    if (call.collective == Collective::barrier)
      return nccl().all_reduce(token(), token(), 1, ncclInt32, ncclSum, communicator_, *stream_);
    const bool writes = call.collective != Collective::reduce || rank_ == call.root;
    if (call.count > 0 && writes) known_.require_device_memory(output, call);
    if (call.count > 0 && call.collective != Collective::broadcast)
      known_.require_device_memory(input, call);
    switch (call.collective) {
      case Collective::all_reduce:
        return nccl().all_reduce(input, output, call.count, type, op, communicator_, *stream_);
      case Collective::reduce_scatter:
        return nccl().reduce_scatter(input, output, block_of(call), type, op, communicator_,
                                     *stream_);
      case Collective::all_gather:
        return nccl().all_gather(input, output, block_of(call), type, communicator_, *stream_);
      case Collective::broadcast:
        return nccl().broadcast(output, output, call.count, type, call.root, communicator_,
                                *stream_);
      case Collective::reduce:
        return nccl().reduce(input, output, call.count, type, op, call.root, communicator_,
                             *stream_);
      default:
        fail(
            "{}: the nccl backend supports all_reduce, reduce_scatter, all_gather, broadcast, "
            "reduce and barrier",
            describe(call));
    }
  }

  // Four bytes of GPU memory, for a barrier to add up.
  void* token() {
    if (!token_) {
      token_.emplace(sizeof(std::int32_t));
      const std::int32_t zero = 0;
      token_->copy_from(&zero, sizeof zero);
    }
    return token_->data();
  }

  // Waits until a call has been started on the GPU; until then its result is ncclInProgress.
  void await(ncclResult_t result, const auto& what) {
    const Deadline deadline = Deadline::after(timeout_);
    for (int polls = 0; result == ncclInProgress; ++polls) {
      pause(polls, deadline, what);
      ncclResult_t state = ncclSuccess;
      result = nccl().comm_get_async_error(communicator_, &state);
      if (result == ncclSuccess) result = state;
    }
    if (result != ncclSuccess) throw_error(result, what());
  }

  void await_stream() {
    const auto what = [&] { return describe(last_); };
    const Deadline deadline = Deadline::after(timeout_);
    for (int polls = 0;; ++polls) {
      const cudaError_t done = cudaStreamQuery(*stream_);
      if (done == cudaSuccess) return;
      if (done != cudaErrorNotReady) check_cuda(done, what());
      static_cast<void>(cudaGetLastError());  // "not ready" is no error
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl().comm_get_async_error(communicator_, &state);
      if (asked != ncclSuccess) throw_error(asked, what());
      if (state != ncclSuccess && state != ncclInProgress) throw_error(state, what());
      pause(polls, deadline, what);
    }
  }

  // Runs between two polls. It does not sleep at first, because a call may take only microseconds.
  void pause(int polls, const Deadline& deadline, const auto& what) {
    constexpr int polls_without_sleep = 2000;
    interruption_.throw_if_any();
    require(
        !deadline.expired(),
        "{}: NCCL {} on rank {} of {} did not finish within {} s; is a rank gone, or in another "
        "call?",
        what(), nccl_version(), rank_, size_, timeout_.count());
    if (polls >= polls_without_sleep) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  [[noreturn]] void throw_error(ncclResult_t result, const std::string& what) {
    const char* const last = nccl().get_last_error(communicator_);
    fail("{}: NCCL {} on rank {} of {}, GPU {}: {}{}{}; NCCL_DEBUG=WARN prints details", what,
         nccl_version(), rank_, size_, device_.place, nccl().get_error_string(result),
         last && *last ? ": " : "", last ? last : "");
  }

  // Waits until the peers have received what this rank sent, which may be after its own calls
  // ended.
  void leave() noexcept {
    try {
      await(nccl().comm_finalize(communicator_), [] { return "leaving"; });
      static_cast<void>(nccl().comm_destroy(communicator_));
      communicator_ = nullptr;
    } catch (const std::exception&) {
      // A peer is gone. No call of this rank is left to report it, and close() aborts.
    }
  }

  // Aborts calls that are under way.
  void close() noexcept {
    if (communicator_) static_cast<void>(nccl().comm_abort(communicator_));
    communicator_ = nullptr;
    stream_.reset();
  }

  const int rank_, size_;
  const Seconds timeout_;
  const NcclMemory memory_;
  const Device device_;
  ncclComm_t communicator_ = nullptr;
  std::optional<CudaStream> stream_;
  std::optional<DeviceBuffer> token_;
  cuda::KnownBuffers known_;
  Call last_;
  FirstCause<RankFailure> failure_;
  FirstCause<Error> interruption_;
};

}  // namespace

bool nccl_is_here() {
  return true;
}

std::string nccl_version() {
  return to_text(nccl().version);
}

std::unique_ptr<cuda::DeviceBackend> make_nccl_backend(ProcessGroup& meeting, int local_rank,
                                                       const NcclOptions& options) {
  return std::make_unique<NcclBackend>(meeting, local_rank, options);
}

std::unique_ptr<cuda::DeviceBackend> make_nccl_backend(const RankInfo& rank_info,
                                                       const NcclOptions& options) {
  // Throw because of a missing GPU or library before waiting for other ranks.
  cuda::choose_device(rank_info.local_rank);
  nccl();
  ProcessGroup meeting = ProcessGroup::over("tcp", rank_info);
  return make_nccl_backend(meeting, rank_info.local_rank, options);
}

}  // namespace ringside::collectives

// Processes that share GPU memory. A collective has two phases, each followed by a barrier of the
// streams:
//
//     every rank copies its input into its own arena
//     stream_barrier(filled)
//     every rank reads from all arenas: adds or copies
//     stream_barrier(read)                                the arenas may be overwritten
//
// In a stream barrier each rank records an event in its stream, the hosts enter a barrier over the
// group, and each stream waits for the events of all ranks. The barrier of the hosts is necessary:
// cudaStreamWaitEvent waits for the latest record of an event, which without it might still be that
// of the previous round. The two events alternate. A rank in one barrier has already made its
// stream wait for the events of the other, so no event is recorded again too early.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/cuda.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/cuda/arena.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/kernels.hpp"
#include "collectives/cuda/pointer.hpp"
#include "collectives/execution/first_failure.hpp"
#include "collectives/group_options.hpp"
#include "collectives/half.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives::cuda {
namespace {

enum Phase { filled, read, phases };

class IpcBackend final : public Backend {
 public:
  IpcBackend(ProcessGroup meeting, int local_rank, Seconds timeout, std::size_t piece_bytes)
      : device_(choose_device_with_ipc(local_rank, meeting.rank())),
        timeout_(timeout),
        meeting_(std::move(meeting)),
        area_(rounded(piece_bytes, Arena::granularity)),
        arena_(2 * area_),
        stream_(fmt::format("making a stream for rank {}", rank())),
        events_{interprocess_event(), interprocess_event()} {
    require(size() <= one_sided::most_ranks, "cuda_ipc is for 1 to {} ranks, not {}",
            one_sided::most_ranks, size());
    try {
      neighbours_.emplace(meeting_, arena_,
                          std::vector<cudaEvent_t>(events_.begin(), events_.end()));
      meeting_.barrier();  // all ranks have opened all arenas
    } catch (...) {
      device_is_stuck = true;
      throw;
    }
  }

  ~IpcBackend() override {
    if (!failure_) static_cast<void>(cudaStreamSynchronize(stream_));
    neighbours_.reset();
    try {
      if (!failure_) meeting_.barrier();  // all ranks have closed the arenas that are freed next
    } catch (const std::exception&) {
      device_is_stuck = true;
    }
  }

  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  std::string name() const override { return "cuda_ipc"; }
  Traffic traffic() const override { return {}; }  // the messages of the hosts carry no data

  void run(const Call& call, const void* input, void* output) override {
    failure_.throw_if_any();
    try {
      check_cuda(cudaSetDevice(device_.number), describe(call));
      compare(call);
      switch (call.type) {
        case DataType::fp32:
          carry_out<float>(call, static_cast<const float*>(input), static_cast<float*>(output));
          break;
        case DataType::fp16:
          carry_out<Fp16>(call, static_cast<const Fp16*>(input), static_cast<Fp16*>(output));
          break;
        case DataType::bf16:
          carry_out<Bf16>(call, static_cast<const Bf16*>(input), static_cast<Bf16*>(output));
          break;
        default:
          fail("{}: cuda_ipc supports fp32, fp16 and bf16", describe(call));
      }
      await_stream(call);
    } catch (const RankFailure& failure) {
      fail_for_good(failure);
      throw;
    } catch (const std::exception& error) {
      meeting_.abort(error.what());
      throw fail_for_good(RankFailure(rank(), error.what()));
    }
  }

  void abort(const std::string& cause) noexcept override {
    fail_for_good(RankFailure(rank(), cause));
    meeting_.abort(cause);
  }

  // run() waits for the hosts of the peers, or for this rank's stream.
  void interrupt(const std::string& cause) noexcept override {
    {
      const std::lock_guard lock(interruption_mutex_);
      if (!interruption_) interruption_ = cause;
    }
    interrupted_.store(true, std::memory_order_release);
    meeting_.abort(cause);
  }

 private:
  // After a failure a peer may be gone: streams may wait for its events for ever, and it may not
  // have closed this rank's arena.
  const RankFailure& fail_for_good(const RankFailure& failure) {
    device_is_stuck = true;
    return failure_.keep(failure);
  }

  static Device choose_device_with_ipc(int local_rank, int rank) {
    const Device device = choose_device(local_rank);
    int supported = 0;
    check_cuda(cudaDeviceGetAttribute(&supported, cudaDevAttrIpcEventSupport, device.number),
               fmt::format("rank {} asking what GPU {} supports", rank, device.number));
    require(supported != 0,
            "rank {}: GPU {} ({}) cannot share memory and events with other processes, which "
            "cuda_ipc needs: use nccl",
            rank, device.number, device.name);
    return device;
  }

  CudaEvent interprocess_event() const {
    return CudaEvent(cudaEventDisableTiming | cudaEventInterprocess,
                     fmt::format("making an event for rank {}", rank()));
  }

  static std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (std::max<std::size_t>(bytes, 1) + to - 1) / to * to;
  }

  // Shows every rank the call of every other; throws Error if they differ.
  void compare(const Call& call) {
    std::vector<Call> all(static_cast<std::size_t>(size()));
    meeting_.all_gather({&call, sizeof call, DataType::uint8},
                        {all.data(), sizeof call * all.size(), DataType::uint8});
    ++calls_;
    for (int r = 0; r < size(); ++r)
      check_call(calls_, call, all[static_cast<std::size_t>(r)], rank(), r);
  }

  template <Element T>
  void carry_out(const Call& call, const T* input, T* output) {
    if (call.collective == Collective::barrier || call.count == 0) return;
    require(
        !reduces(call.collective) || call.reduce == ReduceOp::sum || call.reduce == ReduceOp::avg,
        "{}: cuda_ipc supports sum and avg", describe(call));
    const Chunks blocks = Chunks::even(call.count, size());
    const bool outputs_block = call.collective == Collective::reduce_scatter,
               inputs_block = call.collective == Collective::all_gather;
    const bool has_block = blocks.size(rank()) > 0;
    if (call.collective != Collective::broadcast && (!inputs_block || has_block))
      require_device_memory(input, describe(call));
    if (!outputs_block || has_block) require_device_memory(output, describe(call));
    switch (call.collective) {
      case Collective::all_reduce:
        return all_reduce(call, input, output);
      case Collective::reduce_scatter:
        return reduce_scatter(call, blocks, input, output);
      case Collective::all_gather:
        return all_gather(blocks, input, output);
      case Collective::broadcast:
        return broadcast(call, output);
      default:
        fail("{}: cuda_ipc supports all_reduce, reduce_scatter, all_gather, broadcast and barrier",
             describe(call));
    }
  }

  float scale_of(const Call& call) const {
    return call.reduce == ReduceOp::avg ? 1.0f / static_cast<float>(size()) : 1.0f;
  }

  // Two-shot: each rank adds up its chunk into its second area, and all ranks copy all sums.
  template <Element T>
  void all_reduce(const Call& call, const T* input, T* output) {
    for (std::size_t begin = 0, piece = area_ / sizeof(T); begin < call.count; begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, call.count - begin);
      const Chunks chunks = Chunks::aligned(count, size(), sizeof(T));
      copy(area<T>(rank(), 0), input + begin, count);
      stream_barrier(filled);
      add_up(area<T>(rank(), 1) + chunks.begin(rank()), chunks.begin(rank()), chunks.size(rank()),
             scale_of(call));
      stream_barrier(read);
      for (int s = 1; s <= size(); ++s)
        copy(output + begin + chunks.begin(after(s)), area<T>(after(s), 1) + chunks.begin(after(s)),
             chunks.size(after(s)));
      // The second area is next written after the following stream_barrier(filled), and this rank's
      // copies come before that.
    }
  }

  // A piece has a part of each rank's block; the part of rank r lies at r * piece.
  template <Element T>
  void reduce_scatter(const Call& call, const Chunks& blocks, const T* input, T* output) {
    const std::size_t piece = piece_of_a_block<T>();
    for (std::size_t begin = 0; begin < blocks.size(0); begin += piece) {
      for (int r = 0; r < size(); ++r)
        copy(area<T>(rank(), 0) + static_cast<std::size_t>(r) * piece,
             input + blocks.begin(r) + begin, part(blocks, r, begin, piece));
      stream_barrier(filled);
      add_up(output + begin, static_cast<std::size_t>(rank()) * piece,
             part(blocks, rank(), begin, piece), scale_of(call));
      stream_barrier(read);
    }
  }

  template <Element T>
  void all_gather(const Chunks& blocks, const T* input, T* output) {
    const std::size_t piece = piece_of_a_block<T>();
    for (std::size_t begin = 0; begin < blocks.size(0); begin += piece) {
      copy(area<T>(rank(), 0), input + begin, part(blocks, rank(), begin, piece));
      stream_barrier(filled);
      for (int s = 1; s <= size(); ++s)
        copy(output + blocks.begin(after(s)) + begin, area<T>(after(s), 0),
             part(blocks, after(s), begin, piece));
      stream_barrier(read);
    }
  }

  template <Element T>
  void broadcast(const Call& call, T* output) {
    for (std::size_t begin = 0, piece = area_ / sizeof(T); begin < call.count; begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, call.count - begin);
      if (rank() == call.root) copy(area<T>(rank(), 0), output + begin, count);
      stream_barrier(filled);
      if (rank() != call.root) copy(output + begin, area<T>(call.root, 0), count);
      stream_barrier(read);
    }
  }

  // The rank `steps` after this one. A rank reads from its next neighbour first and from itself
  // last, so in each step every GPU is read by one other.
  int after(int steps) const { return (rank() + steps) % size(); }

  // How many elements of a block fit into one piece, a multiple of 16 bytes.
  template <Element T>
  std::size_t piece_of_a_block() const {
    return area_ / sizeof(T) / static_cast<std::size_t>(size()) / one_sided::Pack<T>::size *
           one_sided::Pack<T>::size;
  }

  static std::size_t part(const Chunks& blocks, int r, std::size_t begin, std::size_t piece) {
    return begin >= blocks.size(r) ? 0 : std::min(piece, blocks.size(r) - begin);
  }

  template <Element T>
  T* area(int of, int which) const {
    return reinterpret_cast<T*>(neighbours_->arena(of) + static_cast<std::size_t>(which) * area_);
  }

  // into = the sum of all ranks' first areas, from element `at` on.
  template <Element T>
  void add_up(T* into, std::size_t at, std::size_t count, float scale) {
    Addends<T> addends;
    addends.count = size();
    addends.first = after(1);
    for (int r = 0; r < size(); ++r) addends.input[r] = area<T>(r, 0) + at;
    check_cuda(launch_sum(addends, into, count, scale, stream_),
               fmt::format("rank {} launching the sum", rank()));
  }

  template <Element T>
  void copy(T* into, const T* from, std::size_t count) {
    if (count == 0) return;
    check_cuda(cudaMemcpyAsync(into, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream_),
               fmt::format("rank {} copying {} elements", rank(), count));
  }

  void stream_barrier(Phase phase) {
    check_cuda(cudaEventRecord(events_[phase], stream_),
               fmt::format("rank {} recording an event", rank()));
    meeting_.barrier();
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        check_cuda(cudaStreamWaitEvent(stream_, neighbours_->event(r, phase), 0),
                   fmt::format("rank {} waiting for rank {}", rank(), r));
  }

  // When a peer dies, the work that this stream waits for may never be done. So the host polls, up
  // to a deadline.
  void await_stream(const Call& call) {
    constexpr int polls_without_sleep = 2000;
    const Deadline deadline = Deadline::after(timeout_);
    for (int polls = 0;; ++polls) {
      const cudaError_t done = cudaStreamQuery(stream_);
      if (done == cudaSuccess) return;
      if (done != cudaErrorNotReady)
        check_cuda(done, fmt::format("{} on rank {}", describe(call), rank()));
      static_cast<void>(cudaGetLastError());  // "not ready" is no error
      if (interrupted_.load(std::memory_order_acquire)) {
        const std::lock_guard lock(interruption_mutex_);
        fail("{}", *interruption_);
      }
      require(!deadline.expired(), "{}: rank {}'s GPU did not finish within {} s; is a rank gone?",
              describe(call), rank(), timeout_.count());
      if (polls >= polls_without_sleep) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  const Device device_;
  const Seconds timeout_;
  ProcessGroup meeting_;
  const std::size_t area_;  // bytes of each half of the arena: the first for inputs, then sums
  Arena arena_;
  const CudaStream stream_;
  const std::array<CudaEvent, phases> events_;
  std::optional<Neighbours> neighbours_;
  std::uint64_t calls_ = 0;
  FirstFailure failure_;
  std::atomic<bool> interrupted_ = false;
  std::mutex interruption_mutex_;
  std::optional<std::string> interruption_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_ipc_backend(ProcessGroup& meeting, int local_rank,
                                               Seconds timeout, std::size_t piece_bytes) {
  return std::make_unique<IpcBackend>(meeting.split(0, meeting.rank()), local_rank, timeout,
                                      piece_bytes);
}

std::unique_ptr<Backend> make_cuda_ipc_backend(const RankInfo& rank_info, Seconds timeout,
                                               std::size_t piece_bytes) {
  choose_device(rank_info.local_rank);  // throw without a GPU before waiting for other ranks
  auto options = group_options_from_environment();
  options.executor.timeout = timeout;
  return std::make_unique<IpcBackend>(ProcessGroup::over("shm", rank_info, options),
                                      rank_info.local_rank, timeout, piece_bytes);
}

}  // namespace ringside::collectives::cuda

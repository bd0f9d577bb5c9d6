// Processes that share memory of GPUs. A collective is two or three moves, and between two moves an
// exchange:
//
//     lay      every rank copies what it has to give into its own arena
//     exchange(laid)
//     take     every rank reads from all arenas: adds, or copies
//     exchange(taken)                                              now what was laid may be overwritten
//
// An exchange is an event that each rank records in its stream, a meeting of the hosts, so that all
// have recorded, and each stream waiting for all events. (cudaStreamWaitEvent means what has been
// recorded by then: without the meeting it would mean the round before. Nor can an event be
// recorded again too early: the two alternate, and who is in one has told its stream to wait for
// the other.)
#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "base/cuda.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/cuda/arena.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/cuda/kernels.hpp"
#include "collectives/cuda/pointer.hpp"
#include "collectives/half.hpp"

namespace ringside::collectives::cuda {
namespace {

enum Moment { laid, taken, moments };

class IpcBackend final : public Backend {
 public:
  IpcBackend(const RankInfo& rank_info, Seconds timeout, std::size_t piece_bytes)
      : device_(choose_device(rank_info.local_rank)),
        timeout_(timeout),
        meeting_(meet_over_shm(rank_info, timeout)),
        area_(rounded(piece_bytes, Arena::granularity)),
        arena_(2 * area_),
        stream_(fmt::format("making a stream for rank {}", rank())),
        events_{interprocess_event(), interprocess_event()} {
    require(size() <= one_sided::most_ranks, "cuda_ipc is for 1 to {} ranks, not {}",
            one_sided::most_ranks, size());
    neighbours_.emplace(meeting_, arena_, std::vector<cudaEvent_t>(events_.begin(), events_.end()));
    meeting_.barrier();  // all could open all
  }

  ~IpcBackend() override {
    if (!broken_) static_cast<void>(cudaStreamSynchronize(stream_));
    neighbours_.reset();
    try {
      if (!broken_) meeting_.barrier();  // all have closed what is freed next
    } catch (const std::exception&) {    // a peer is gone: there is nobody left to wait for
    }
  }

  int rank() const override { return meeting_.rank(); }
  int size() const override { return meeting_.size(); }
  std::string name() const override { return "cuda_ipc"; }
  Traffic traffic() const override { return {}; }  // the host's messages are not what is measured

  void run(const Call& call, const void* input, void* output) override {
    if (broken_) throw *broken_;
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
          fail("{}: cuda_ipc knows fp32, fp16 and bf16", describe(call));
      }
      await_stream(call);
    } catch (const RankFailure& failure) {
      broken_ = failure;
      throw;
    } catch (const std::exception& error) {
      broken_ = RankFailure(rank(), error.what());
      meeting_.abort(error.what());
      throw *broken_;
    }
  }

  void abort(const std::string& cause) noexcept override {
    if (!broken_) broken_ = RankFailure(rank(), cause);
    meeting_.abort(cause);
  }

 private:
  static ProcessGroup meet_over_shm(const RankInfo& rank_info, Seconds timeout) {
    auto options = group_options_from_environment();
    options.executor.timeout = timeout;
    return ProcessGroup::over_shm(rank_info, options);
  }

  CudaEvent interprocess_event() const {
    return CudaEvent(cudaEventDisableTiming | cudaEventInterprocess,
                     fmt::format("making an event for rank {}", rank()));
  }

  static std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (std::max<std::size_t>(bytes, 1) + to - 1) / to * to;
  }

  // Every rank's call, seen by every rank: the first meeting of a call.
  void compare(const Call& call) {
    std::vector<Call> all(static_cast<std::size_t>(size()));
    meeting_.all_gather(&call, all.data(), sizeof(Call) * all.size(), DataType::uint8);
    ++calls_;
    for (int r = 0; r < size(); ++r)
      check_call(calls_, call, all[static_cast<std::size_t>(r)], rank(), r);
  }

  template <Element T>
  void carry_out(const Call& call, const T* input, T* output) {
    if (call.collective == Collective::barrier || call.count == 0) return;
    require(
        !reduces(call.collective) || call.reduce == ReduceOp::sum || call.reduce == ReduceOp::avg,
        "{}: cuda_ipc knows sum and avg", describe(call));
    const Chunks blocks = Chunks::even(call.count, size());
    const bool takes_block = call.collective == Collective::reduce_scatter,
               gives_block = call.collective == Collective::all_gather;
    const bool has_block = blocks.size(rank()) > 0;
    if (call.collective != Collective::broadcast && (!gives_block || has_block))
      require_device_memory(input, describe(call));
    if (!takes_block || has_block) require_device_memory(output, describe(call));
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
        fail("{}: cuda_ipc has all_reduce, reduce_scatter, all_gather, broadcast and barrier",
             describe(call));
    }
  }

  float scale_of(const Call& call) const {
    return call.reduce == ReduceOp::avg ? 1.0f / static_cast<float>(size()) : 1.0f;
  }

  // Two-shot: each rank adds up its chunk, lays the sum into the second area, and all take all
  // sums.
  template <Element T>
  void all_reduce(const Call& call, const T* input, T* output) {
    for (std::size_t begin = 0, piece = area_ / sizeof(T); begin < call.count; begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, call.count - begin);
      const Chunks chunks = Chunks::aligned(count, size(), sizeof(T));
      copy(area<T>(rank(), 0), input + begin, count);
      exchange(laid);
      add_up(area<T>(rank(), 1) + chunks.begin(rank()), chunks.begin(rank()), chunks.size(rank()),
             scale_of(call));
      exchange(taken);
      for (int r = 0; r < size(); ++r)
        copy(output + begin + chunks.begin(r), area<T>(r, 1) + chunks.begin(r), chunks.size(r));
      // The second area is written again after the next exchange(laid), which this rank's copies
      // come before.
    }
  }

  // In pieces of a block of each rank; block r of a piece lies at r * piece.
  template <Element T>
  void reduce_scatter(const Call& call, const Chunks& blocks, const T* input, T* output) {
    const std::size_t piece = piece_of_a_block<T>();
    for (std::size_t begin = 0; begin < blocks.largest(); begin += piece) {
      for (int r = 0; r < size(); ++r)
        copy(area<T>(rank(), 0) + static_cast<std::size_t>(r) * piece,
             input + blocks.begin(r) + begin, part(blocks, r, begin, piece));
      exchange(laid);
      add_up(output + begin, static_cast<std::size_t>(rank()) * piece,
             part(blocks, rank(), begin, piece), scale_of(call));
      exchange(taken);
    }
  }

  template <Element T>
  void all_gather(const Chunks& blocks, const T* input, T* output) {
    const std::size_t piece = piece_of_a_block<T>();
    for (std::size_t begin = 0; begin < blocks.largest(); begin += piece) {
      copy(area<T>(rank(), 0), input + begin, part(blocks, rank(), begin, piece));
      exchange(laid);
      for (int r = 0; r < size(); ++r)
        copy(output + blocks.begin(r) + begin, area<T>(r, 0), part(blocks, r, begin, piece));
      exchange(taken);
    }
  }

  template <Element T>
  void broadcast(const Call& call, T* output) {
    for (std::size_t begin = 0, piece = area_ / sizeof(T); begin < call.count; begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, call.count - begin);
      if (rank() == call.root) copy(area<T>(rank(), 0), output + begin, count);
      exchange(laid);
      if (rank() != call.root) copy(output + begin, area<T>(call.root, 0), count);
      exchange(taken);
    }
  }

  // Elements of a block that go at once, on 16 bytes.
  template <Element T>
  std::size_t piece_of_a_block() const {
    return area_ / sizeof(T) / static_cast<std::size_t>(size()) / one_sided::Pack<T>::lanes *
           one_sided::Pack<T>::lanes;
  }

  static std::size_t part(const Chunks& blocks, int r, std::size_t begin, std::size_t piece) {
    return begin >= blocks.size(r) ? 0 : std::min(piece, blocks.size(r) - begin);
  }

  template <Element T>
  T* area(int of, int which) const {
    return reinterpret_cast<T*>(neighbours_->arena(of) + static_cast<std::size_t>(which) * area_);
  }

  // into = the sum of what all have laid at element `at`.
  template <Element T>
  void add_up(T* into, std::size_t at, std::size_t count, float scale) {
    Addends<T> addends;
    addends.count = size();
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

  void exchange(Moment moment) {
    check_cuda(cudaEventRecord(events_[moment], stream_),
               fmt::format("rank {} recording an event", rank()));
    meeting_.barrier();
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        check_cuda(cudaStreamWaitEvent(stream_, neighbours_->event(r, moment), 0),
                   fmt::format("rank {} waiting for rank {}", rank(), r));
  }

  // A peer that dies takes its work on the GPU along, and what waits for that may wait for ever:
  // not so its host.
  void await_stream(const Call& call) {
    constexpr int without_sleep = 2000;
    const Deadline deadline = Deadline::after(timeout_);
    for (int looks = 0;; ++looks) {
      const cudaError_t done = cudaStreamQuery(stream_);
      if (done == cudaSuccess) return;
      if (done != cudaErrorNotReady)
        check_cuda(done, fmt::format("{} on rank {}", describe(call), rank()));
      static_cast<void>(cudaGetLastError());  // "not ready" is no error
      require(!deadline.expired(),
              "{}: rank {}'s GPU has made no end of it within {} s; is a rank gone?",
              describe(call), rank(), timeout_.count());
      if (looks >= without_sleep) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  const Device device_;
  const Seconds timeout_;
  ProcessGroup meeting_;
  const std::size_t area_;  // bytes: of what is laid, and as much for sums
  Arena arena_;
  const CudaStream stream_;
  const std::array<CudaEvent, moments> events_;
  std::optional<Neighbours> neighbours_;
  std::uint64_t calls_ = 0;
  std::optional<RankFailure> broken_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_ipc_backend(const RankInfo& rank_info, Seconds timeout,
                                               std::size_t piece_bytes) {
  return std::make_unique<IpcBackend>(rank_info, timeout, piece_bytes);
}

}  // namespace ringside::collectives::cuda

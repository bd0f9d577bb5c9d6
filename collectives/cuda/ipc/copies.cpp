// cuda_ipc where ranks share a GPU: no kernel waits for another. A collective goes in pieces, and
// each piece has one barrier of the streams:
//
//     every rank copies its input into an area of its own arena
//     stream_barrier()
//     every rank reads that area of all arenas: adds or copies
//
// An arena has two areas, which pieces use by turns. So no barrier is needed after reading: a rank
// that overwrites an area in piece n+2 has waited for the barrier of piece n+1, before which all
// peers have read piece n. Each barrier costs turns of the GPU, which runs the processes one after
// the other. That is why an all_reduce has no second phase, in which each rank would add a chunk
// only: to read all inputs on every rank takes less time than another barrier.
//
// In a stream barrier each rank records an event in its stream, the hosts enter a barrier over the
// group, and each stream waits for the events of all ranks. The barrier of the hosts is necessary:
// cudaStreamWaitEvent waits for the latest record of an event, which without it might still be that
// of an earlier barrier. Two events alternate. A rank in one barrier has already made its stream
// wait for the events of the other, so no event is recorded again too early. The hosts wait for
// each other and not for the GPU, so calls queue up.
//
// A rank reads from its next neighbour first and from itself last, so in each step every GPU is
// read by one other.
#include <algorithm>
#include <array>

#include "base/cuda.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/ipc/arena.hpp"
#include "collectives/cuda/kernel_launcher.hpp"

namespace ringside::collectives::cuda {
namespace {

class Copies final : public IpcPath {
 public:
  explicit Copies(IpcRank& rank)
      : rank_(rank),
        area_(whole_lines(std::max<std::size_t>(rank.options.area_bytes, 1))),
        stream_(fmt::format("making a stream for rank {}", rank.rank())),
        events_{interprocess_event(), interprocess_event()},
        arena_(rank, 2 * area_, 0, {events_.begin(), events_.end()}) {}

  ~Copies() override {
    if (!rank_.failed) static_cast<void>(cudaStreamSynchronize(stream_));
  }

  std::uint64_t enqueue(const Call& call, const void* input, void* output) override {
    require(
        !is_capturing(stream_),
        "{}: a CUDA graph cannot hold a call by copies, in which the hosts take part: give each "
        "rank a GPU, or use ranks that are threads (cuda_kernels)",
        describe(call));
    rank_.compare(call);
    if (call.collective == Collective::barrier || call.count == 0) return 0;
    with_element_of(call, [&]<class T>(T) {
      carry_out(call, static_cast<const T*>(input), static_cast<T*>(output));
    });
    // In an all_reduce every rank reads all inputs, as in a one-shot.
    const bool all_reduce = call.collective == Collective::all_reduce;
    return bytes_to_peers(call, all_reduce ? Kernel::one_shot : kernel_for(call), rank_.rank(),
                          rank_.size());
  }

  void finish(const Call& last) override {
    await_stream(stream_, last, fmt::format("rank {}'s", rank_.rank()), rank_.options.timeout,
                 [&] { rank_.look(last); });
  }

  cudaStream_t stream() const override { return stream_; }

  // The stream may wait for an event of a rank that is gone.
  void give_up() noexcept override { await_end(stream_); }

 private:
  CudaEvent interprocess_event() const {
    return CudaEvent(cudaEventDisableTiming | cudaEventInterprocess,
                     fmt::format("making an event for rank {}", rank_.rank()));
  }

  template <Element T>
  void carry_out(const Call& call, const T* input, T* output) {
    const Chunks blocks = Chunks::even(call.count, rank_.size());
    switch (call.collective) {
      case Collective::all_reduce:
        return all_reduce(call, input, output);
      case Collective::reduce_scatter:
        return reduce_scatter(call, blocks, input, output);
      case Collective::all_gather:
        return all_gather(blocks, input, output);
      default:
        return broadcast(call, output);
    }
  }

  float scale_of(const Call& call) const {
    return call.reduce == ReduceOp::avg ? 1.0f / static_cast<float>(rank_.size()) : 1.0f;
  }

  template <Element T>
  void all_reduce(const Call& call, const T* input, T* output) {
    for (std::size_t begin = 0, piece = area_ / sizeof(T); begin < call.count; begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, call.count - begin);
      copy(area<T>(rank_.rank()), input + begin, count);
      stream_barrier();
      add_up(output + begin, 0, count, scale_of(call));
      ++pieces_;
    }
  }

  // A piece has a part of each rank's block; the part of rank r lies at r * piece.
  template <Element T>
  void reduce_scatter(const Call& call, const Chunks& blocks, const T* input, T* output) {
    const std::size_t piece = piece_of_a_block<T>();
    for (std::size_t begin = 0; begin < blocks.size(0); begin += piece) {
      for (int r = 0; r < rank_.size(); ++r)
        copy(area<T>(rank_.rank()) + r * piece, input + blocks.begin(r) + begin,
             part(blocks, r, begin, piece));
      stream_barrier();
      add_up(output + begin, rank_.rank() * piece, part(blocks, rank_.rank(), begin, piece),
             scale_of(call));
      ++pieces_;
    }
  }

  template <Element T>
  void all_gather(const Chunks& blocks, const T* input, T* output) {
    const std::size_t piece = piece_of_a_block<T>();
    for (std::size_t begin = 0; begin < blocks.size(0); begin += piece) {
      copy(area<T>(rank_.rank()), input + begin, part(blocks, rank_.rank(), begin, piece));
      stream_barrier();
      for (int s = 1; s <= rank_.size(); ++s)
        copy(output + blocks.begin(rank_.after(s)) + begin, area<T>(rank_.after(s)),
             part(blocks, rank_.after(s), begin, piece));
      ++pieces_;
    }
  }

  template <Element T>
  void broadcast(const Call& call, T* output) {
    for (std::size_t begin = 0, piece = area_ / sizeof(T); begin < call.count; begin += piece) {
      const std::size_t count = std::min<std::size_t>(piece, call.count - begin);
      if (rank_.rank() == call.root) copy(area<T>(rank_.rank()), output + begin, count);
      stream_barrier();
      if (rank_.rank() != call.root) copy(output + begin, area<T>(call.root), count);
      ++pieces_;
    }
  }

  // How many elements of a block fit into one piece, a multiple of 16 bytes.
  template <Element T>
  std::size_t piece_of_a_block() const {
    return area_ / sizeof(T) / rank_.size() / one_sided::Pack<T>::size * one_sided::Pack<T>::size;
  }

  static std::size_t part(const Chunks& blocks, int r, std::size_t begin, std::size_t piece) {
    return begin >= blocks.size(r) ? 0 : std::min(piece, blocks.size(r) - begin);
  }

  // Of the two areas and of the two events, the ones of this piece.
  int turn() const { return static_cast<int>(pieces_ % 2); }

  template <Element T>
  T* area(int of) const {
    return reinterpret_cast<T*>(arena_.of(of) + static_cast<std::size_t>(turn()) * area_);
  }

  // into = the sum of all ranks' areas, from element `at` on.
  template <Element T>
  void add_up(T* into, std::size_t at, std::size_t count, float scale) {
    Addends<T> addends;
    addends.count = rank_.size();
    addends.first = rank_.after(1);
    for (int r = 0; r < rank_.size(); ++r) addends.input[r] = area<T>(r) + at;
    check_cuda(launch_sum(addends, into, count, scale, rank_.resident_blocks, stream_),
               fmt::format("rank {} launching the sum", rank_.rank()));
  }

  template <Element T>
  void copy(T* into, const T* from, std::size_t count) {
    if (count == 0) return;
    check_cuda(cudaMemcpyAsync(into, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream_),
               fmt::format("rank {} copying {} elements", rank_.rank(), count));
  }

  void stream_barrier() {
    const int which = turn();
    check_cuda(cudaEventRecord(events_[which], stream_),
               fmt::format("rank {} recording an event", rank_.rank()));
    rank_.group.barrier();
    for (int r = 0; r < rank_.size(); ++r)
      if (r != rank_.rank())
        check_cuda(cudaStreamWaitEvent(stream_, arena_.event(r, which), 0),
                   fmt::format("rank {} waiting for rank {}", rank_.rank(), r));
  }

  IpcRank& rank_;
  const std::size_t area_;  // bytes of each half of the arena
  const CudaStream stream_;
  const std::array<CudaEvent, 2> events_;
  const SharedArena arena_;
  std::uint64_t pieces_ = 0;  // so far
};

}  // namespace

std::unique_ptr<IpcPath> make_copies(IpcRank& rank) {
  return std::make_unique<Copies>(rank);
}

}  // namespace ringside::collectives::cuda

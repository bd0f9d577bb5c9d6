// cuda_ipc where each rank has a GPU: a call is one kernel on each GPU, and the kernels spin on
// flags and packets in each other's arenas (one_sided/).
//
//     an arena:   [ mailbox | packets | first area | second area ]
//
// A host launches its kernel and then exchanges a message with the other hosts while the kernel
// runs. So the calls are compared, and a rank that is lost or late is named, at no cost. If that
// fails, or later if the process of a peer ends, the host raises a word that its kernel reads; the
// kernel gives up and raises the flags of all ranks, so that all kernels end.
#include <algorithm>
#include <vector>

#include "base/cuda.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/ipc/arena.hpp"
#include "collectives/cuda/kernel_launcher.hpp"

namespace ringside::collectives::cuda {
namespace {

using one_sided::Mailbox;
using one_sided::PacketBox;

constexpr std::size_t boxes_begin = whole_lines(sizeof(Mailbox)),
                      areas_begin = boxes_begin + whole_lines(sizeof(PacketBox));
// A pack for each chunk of each block.
constexpr std::size_t least_area = std::size_t(one_sided::most_blocks) * one_sided::most_ranks * 16;

class Spinning final : public IpcPath {
 public:
  explicit Spinning(IpcRank& rank)
      : rank_(rank),
        launcher_(rank.size(), rank.rank(), 1, rank.options.timeout),
        area_(whole_lines(std::max(rank.options.area_bytes, least_area))),
        arena_(rank, areas_begin + 2 * area_, areas_begin, {}) {
    launcher_.set_most_blocks(blocks_);
    IpcRank::taken += blocks_;
  }
  ~Spinning() override { IpcRank::taken -= blocks_; }

  std::uint64_t enqueue(const Call& call, const void* input, void* output) override {
    std::uint64_t bytes = 0;
    if (call.collective != Collective::barrier && call.count > 0) {
      const Kernel kernel = kernel_of(call);
      with_element_of(call, [&]<class T>(T) { launch<T>(call, kernel, input, output); });
      bytes = bytes_to_peers(call, kernel, rank_.rank(), rank_.size());
    }
    rank_.compare(call);
    return bytes;
  }

  void finish(const Call& last) override {
    if (launcher_.finish(last, [&] { rank_.look(last); })) return;
    // The rank that gave up first tells the others why, here.
    rank_.group.barrier();
    fail("{}: rank {}'s kernel was told to stop", describe(last), rank_.rank());
  }

  cudaStream_t stream() const override { return launcher_.stream(); }

  void give_up() noexcept override {
    std::vector<one_sided::Flag*> flags;
    for (int r = 0; r < rank_.size(); ++r) flags.push_back(&mailbox(r)->aborted);
    launcher_.stop(flags);
  }

 private:
  Kernel kernel_of(const Call& call) const {
    if (call.collective != Collective::all_reduce) return kernel_for(call);
    const std::string_view name = rank_.options.all_reduce == "auto"
                                      ? cuda_ipc_algorithm(call.count * size_of(call.type))
                                      : std::string_view(rank_.options.all_reduce);
    Call named = call;
    named.algorithm = number_of(find_algorithm(call.collective, name));
    return kernel_for(named);
  }

  template <Element T>
  void launch(const Call& call, Kernel kernel, const void* input, void* output) {
    Task<T> task = launcher_.task_for<T>(call, kernel);
    task.buffers.input[rank_.rank()] = static_cast<const T*>(input);
    task.buffers.output[rank_.rank()] = static_cast<T*>(output);
    task.room = area_ / sizeof(T);
    for (int r = 0; r < rank_.size(); ++r) {
      std::byte* const arena = arena_.of(r);
      task.mailboxes[r] = mailbox(r);
      task.boxes[r] = reinterpret_cast<PacketBox*>(arena + boxes_begin);
      task.areas.input[r] = reinterpret_cast<const T*>(arena + areas_begin);
      task.areas.output[r] = reinterpret_cast<T*>(arena + areas_begin + area_);
    }
    launcher_.launch(call, task);
  }

  Mailbox* mailbox(int r) const { return reinterpret_cast<Mailbox*>(arena_.of(r)); }

  IpcRank& rank_;
  const int blocks_ = rank_.placement.least_blocks();
  KernelLauncher launcher_;
  const std::size_t area_;  // bytes
  const SharedArena arena_;
};

}  // namespace

std::unique_ptr<IpcPath> make_spinning(IpcRank& rank) {
  return std::make_unique<Spinning>(rank);
}

}  // namespace ringside::collectives::cuda

// What users hold: the ranks of a job, and the collectives among them, under the names of
// torch.distributed.
//
//     ProcessGroup group = ProcessGroup::from_environment();     // started by ringside launch, torchrun, mpirun, srun
//     std::vector<float> gradients = ...;
//     group.all_reduce(std::span(gradients), ReduceOp::avg);
//
// Every rank must make the same calls in the same order. Calls block; those named _async return a
// Work. Results are the same on all ranks, bit for bit. A group belongs to one thread at a time.
// When something goes wrong, on whatever rank, every rank's call throws within the timeout, with
// the first cause; afterwards the group is of no further use.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/transport/link.hpp"
#include "collectives/work.hpp"

namespace ringside::collectives {

struct GroupOptions {
  ExecutorOptions executor;
  AlgorithmSelection algorithms;
  std::optional<Link> link =
      {};  // slows the group down to what such a network would give: transport/shaped.hpp
};

// The defaults, with RINGSIDE_TIMEOUT (seconds), RINGSIDE_WARN_AFTER (seconds, 0: never),
// RINGSIDE_SLICE_BYTES, RINGSIDE_ALGORITHM ("all_reduce=two_shot,...") and RINGSIDE_LINK
// ("1Gbps,50us") applied.
GroupOptions group_options_from_environment();

class ProcessGroup {
 public:
  explicit ProcessGroup(std::unique_ptr<Backend> backend, AlgorithmSelection algorithms = {})
      : calls_(std::make_unique<CallQueue>(std::move(backend))),
        algorithms_(std::move(algorithms)) {}

  // Connects with the other ranks of the job: where all run on one host through shared memory,
  // otherwise over TCP (transport/automatic.hpp). Blocks until all have come; errors: those of
  // place.hpp and rendezvous.hpp. RINGSIDE_BACKEND says otherwise: tcp or shm instead of auto.
  static ProcessGroup from_environment();
  static ProcessGroup over(std::string_view backend, const RankInfo& rank_info,
                           const GroupOptions& options = group_options_from_environment());

  static ProcessGroup over_tcp(const RankInfo& rank_info,
                               const GroupOptions& options = group_options_from_environment());

  // For ranks of one host only, through shared memory: transport/shm.hpp.
  static ProcessGroup over_shm(const RankInfo& rank_info,
                               const GroupOptions& options = group_options_from_environment());

  int rank() const { return calls_->backend().rank(); }
  int size() const { return calls_->backend().size(); }
  std::string backend_name() const { return calls_->backend().name(); }

  // data, on every rank, becomes the reduction of all ranks' data.
  template <Element T>
  void all_reduce(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    all_reduce(data.data(), data.data(), data.size(), data_type_of<T>(), op);
  }
  // The same out of place: input stays as it is. The spans are equally long and do not overlap, or
  // are one and the same.
  template <Element T>
  void all_reduce(std::span<const T> input, std::span<T> output, ReduceOp op = ReduceOp::sum) {
    require_equal("all_reduce", input.size(), output.size());
    all_reduce(input.data(), output.data(), input.size(), data_type_of<T>(), op);
  }

  // input is size() blocks, one for each rank; output becomes the reduction of block rank() over
  // all ranks. Blocks are of equal length where input's length divides by size(), otherwise the
  // first ones are longer by one element: block_size() tells.
  template <Element T>
  void reduce_scatter(std::span<const T> input, std::span<T> output, ReduceOp op = ReduceOp::sum) {
    require_equal("reduce_scatter", block_size(input.size(), rank()), output.size());
    reduce_scatter(input.data(), output.data(), input.size(), data_type_of<T>(), op);
  }

  // The inverse: output becomes all ranks' inputs, one after the other.
  template <Element T>
  void all_gather(std::span<const T> input, std::span<T> output) {
    require_equal("all_gather", block_size(output.size(), rank()), input.size());
    all_gather(input.data(), output.data(), output.size(), data_type_of<T>());
  }

  // data, on every rank, becomes what the root's data is.
  template <Element T>
  void broadcast(std::span<T> data, int root) {
    broadcast(data.data(), data.size(), data_type_of<T>(), root);
  }

  // output, on the root, becomes the reduction of all ranks' inputs. On other ranks output is not
  // used and may be empty.
  template <Element T>
  void reduce(std::span<const T> input, std::span<T> output, int root,
              ReduceOp op = ReduceOp::sum) {
    if (rank() == root) require_equal("reduce", input.size(), output.size());
    reduce(input.data(), output.data(), input.size(), data_type_of<T>(), root, op);
  }

  // output, on the root, becomes all ranks' inputs, one after the other; they are equally long. On
  // other ranks output is not used.
  template <Element T>
  void gather(std::span<const T> input, std::span<T> output, int root) {
    if (rank() == root) require_equal("gather", input.size() * size(), output.size());
    gather(input.data(), output.data(), input.size() * size(), data_type_of<T>(), root);
  }

  // The inverse: output becomes block rank() of the root's input. On other ranks input is not used.
  template <Element T>
  void scatter(std::span<const T> input, std::span<T> output, int root) {
    if (rank() == root) require_equal("scatter", output.size() * size(), input.size());
    scatter(input.data(), output.data(), output.size() * size(), data_type_of<T>(), root);
  }

  // Block i of output becomes block rank() of rank i's input. Both spans are size() blocks of equal
  // length, and may be one and the same.
  template <Element T>
  void all_to_all(std::span<const T> input, std::span<T> output) {
    require_equal("all_to_all", input.size(), output.size());
    all_to_all(input.data(), output.data(), input.size(), data_type_of<T>());
  }

  // data goes from one rank to another, which calls recv: only these two take part. What one rank
  // sends to the other arrives in order.
  template <Element T>
  void send(std::span<const T> data, int to) {
    send(data.data(), data.size(), data_type_of<T>(), to);
  }
  template <Element T>
  void recv(std::span<T> data, int from) {
    recv(data.data(), data.size(), data_type_of<T>(), from);
  }

  // Returns when every rank has called it.
  void barrier();

  // Divides the group: ranks that give the same color make up a new group, in the order of their
  // keys, and of their ranks where keys are equal. Every rank must call it, and gets the group that
  // it is in, of itself alone perhaps. It has its own connections, so it and this one, and all
  // other groups, can be used at the same time; it outlives this one if need be. A device mesh is
  // two splits:
  //     ProcessGroup row = group.split(rank / columns), column = group.split(rank % columns);
  // Throws Error where the backend has no sub-groups (gloo, mpi), or a member does not come within
  // the time to connect.
  ProcessGroup split(int color, int key = 0);

  // The same calls for memory whose type is known at run time only. Counts are in elements; of
  // reduce_scatter, scatter and all_to_all the input's, of all_gather and gather the output's. A
  // label names the data in error messages; the ranks' labels must agree.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  std::string_view label = {});
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                      ReduceOp op, std::string_view label = {});
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  std::string_view label = {});
  void broadcast(void* data, std::size_t count, DataType type, int root,
                 std::string_view label = {});
  void reduce(const void* input, void* output, std::size_t count, DataType type, int root,
              ReduceOp op, std::string_view label = {});
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              std::string_view label = {});
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               std::string_view label = {});
  void all_to_all(const void* input, void* output, std::size_t count, DataType type,
                  std::string_view label = {});
  void send(const void* data, std::size_t count, DataType type, int to,
            std::string_view label = {});
  void recv(void* data, std::size_t count, DataType type, int from, std::string_view label = {});

  // The same, as Work (work.hpp): they return at once, and the buffers must be left alone until the
  // work is done.
  template <Element T>
  Work all_reduce_async(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    return all_reduce_async(data.data(), data.data(), data.size(), data_type_of<T>(), op);
  }
  template <Element T>
  Work reduce_scatter_async(std::span<const T> input, std::span<T> output,
                            ReduceOp op = ReduceOp::sum) {
    require_equal("reduce_scatter", block_size(input.size(), rank()), output.size());
    return reduce_scatter_async(input.data(), output.data(), input.size(), data_type_of<T>(), op);
  }
  template <Element T>
  Work all_gather_async(std::span<const T> input, std::span<T> output) {
    require_equal("all_gather", block_size(output.size(), rank()), input.size());
    return all_gather_async(input.data(), output.data(), output.size(), data_type_of<T>());
  }
  template <Element T>
  Work broadcast_async(std::span<T> data, int root) {
    return broadcast_async(data.data(), data.size(), data_type_of<T>(), root);
  }
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                        ReduceOp op, std::string_view label = {});
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                            ReduceOp op, std::string_view label = {});
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                        std::string_view label = {});
  Work broadcast_async(void* data, std::size_t count, DataType type, int root,
                       std::string_view label = {});

  // Forces algorithms from the next call on; every rank must do so at the same point.
  void set_algorithms(AlgorithmSelection algorithms) {
    if (!algorithms.costs() && algorithms_.costs()) algorithms.set_costs(*algorithms_.costs());
    algorithms_ = std::move(algorithms);
  }

  // The algorithm that a call of this kind takes, on every rank; `count` as in the calls above
  // whose type is known at run time only.
  const Algorithm& algorithm_for(Collective collective, std::size_t count, DataType type) const {
    return algorithms_.choose(collective, count, type, size());
  }

  // The length of rank r's block when `count` elements are shared out among all ranks, and where it
  // begins.
  std::size_t block_size(std::size_t count, int r) const {
    return Chunks::even(count, size()).size(r);
  }
  std::size_t block_begin(std::size_t count, int r) const {
    return Chunks::even(count, size()).begin(r);
  }

  // From here on calls on memory of a device go over `device` (two_memories.hpp). No call may be
  // under way. Throws Error, and leaves the group as it is, unless it is of the same rank and size.
  void add_device(std::unique_ptr<Backend> device, IsDeviceMemory is_device_memory) {
    calls_->add_device(std::move(device), std::move(is_device_memory));
  }

  // For memory of a device (work.hpp): from the next call on, each first waits for what the device
  // had been given to do when the call was made.
  void set_fence(Fence fence) { calls_->set_fence(std::move(fence)); }

  // Tells the other ranks that this one gives up, and why: their calls fail with this cause. Calls
  // of this rank that are under way end.
  void abort(const std::string& cause) noexcept { calls_->abort(cause); }

  // What this rank has sent since the group was made, and where the time went.
  Traffic traffic() const { return calls_->backend().traffic(); }
  CallTimes times() const { return calls_->times(); }

 private:
  static void require_equal(const char* collective, std::size_t expected, std::size_t seen);
  Call complete(Call call) const;
  Call between(int from, int to, std::size_t count, DataType type, std::string_view label) const;
  void run(const Call& call, const void* input, void* output);
  Work start(const Call& call, const void* input, void* output);

  std::unique_ptr<CallQueue> calls_;
  AlgorithmSelection algorithms_;
  std::string name_;  // of a sub-group: "split2.color0"
  int splits_ = 0;
};

// Runs `body` on `size` ranks, each a thread of this process with a group over the threads
// transport. Returns when all have ended. If some throw, the others are told, and the first cause
// is thrown here.
void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options = group_options_from_environment());

}  // namespace ringside::collectives

// The ranks of a job and the collectives among them, with the names of torch.distributed.
//
//     ProcessGroup group = ProcessGroup::from_environment();   // started by ringside launch,
//     std::vector<float> gradients = ...;                      // torchrun, mpirun or srun
//     group.all_reduce(std::span(gradients), ReduceOp::avg);
//
// Every rank must make the same calls in the same order. Results are the same on all ranks, bit for
// bit. One thread at a time may use a group. When a call fails on any rank, the calls of all ranks
// throw Error with the first cause within the timeout; afterwards the group cannot be used.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collectives/data_type.hpp"
#include "collectives/work.hpp"

namespace ringside::collectives {

class AlgorithmSelection;
class Backend;
enum class Collective : std::uint8_t;
struct Algorithm;
struct GroupOptions;
struct RankInfo;
struct Traffic;

class ProcessGroup {
 public:
  // Connects to the other ranks of the job, as the environment describes it: over shared memory if
  // all ranks run on one host, otherwise over TCP. RINGSIDE_BACKEND overrides this: auto, tcp or
  // shm. Blocks until all ranks have come; throws the errors of rank_info.hpp and rendezvous.hpp.
  // Without `options`, group_options_from_environment() (group_options.hpp).
  static ProcessGroup from_environment();
  static ProcessGroup over(std::string_view backend, const RankInfo& rank_info);
  static ProcessGroup over(std::string_view backend, const RankInfo& rank_info,
                           const GroupOptions& options);
  static ProcessGroup over_tcp(const RankInfo& rank_info);
  static ProcessGroup over_tcp(const RankInfo& rank_info, const GroupOptions& options);
  static ProcessGroup over_shm(const RankInfo& rank_info);
  static ProcessGroup over_shm(const RankInfo& rank_info, const GroupOptions& options);

  explicit ProcessGroup(std::unique_ptr<Backend> backend);
  ProcessGroup(std::unique_ptr<Backend> backend, AlgorithmSelection algorithms);
  ProcessGroup(ProcessGroup&& other) noexcept;
  ProcessGroup& operator=(ProcessGroup&& other) noexcept;
  ~ProcessGroup();  // waits for the calls that are under way

  int rank() const;
  int size() const;
  std::string backend_name() const;

  // ---- Collectives on untyped memory. Calls block. Buffers may be the same where noted, and must
  // not overlap otherwise. A label names the data in error messages; all ranks must give the same.

  // output = the reduction of all ranks' inputs, each of `count` elements. Output may be input.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  std::string_view label = {});

  // The input has `count` elements: a block for each rank. output = the reduction of block rank()
  // over all ranks. It may be that block of the input.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                      ReduceOp op, std::string_view label = {});

  // The inverse: output, of `count` elements, = the inputs of all ranks, in the order of ranks. The
  // input may be block rank() of the output.
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  std::string_view label = {});

  // data = the root's data.
  void broadcast(void* data, std::size_t count, DataType type, int root,
                 std::string_view label = {});

  // output on the root = the reduction of all ranks' inputs. Other ranks' outputs are not used.
  // Output may be input.
  void reduce(const void* input, void* output, std::size_t count, DataType type, int root,
              ReduceOp op, std::string_view label = {});

  // output on the root, of `count` elements, = the inputs of all ranks, in the order of ranks.
  // Other ranks' outputs are not used. The input may be block rank() of the output.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              std::string_view label = {});

  // The inverse: output = block rank() of the root's input, which has `count` elements. Other
  // ranks' inputs are not used. The output may be that block.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               std::string_view label = {});

  // Block i of the output = block rank() of rank i's input; both have `count` elements in size()
  // blocks of equal length. Output may be input.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type,
                  std::string_view label = {});

  // Returns when every rank has called it.
  void barrier();

  // Moves data from the rank that calls send(data, to) to the rank that calls recv(data, from).
  // Only these two take part. What one rank sends to another arrives in order.
  void send(const void* data, std::size_t count, DataType type, int to,
            std::string_view label = {});
  void recv(void* data, std::size_t count, DataType type, int from, std::string_view label = {});

  // The same calls as Work (work.hpp): they return at once. Do not touch the buffers until the Work
  // is done.
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                        ReduceOp op, std::string_view label = {});
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                            ReduceOp op, std::string_view label = {});
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                        std::string_view label = {});
  // They wait in this group's queue like the others: what must not wait for another message uses
  // another group.
  Work send_async(const void* data, std::size_t count, DataType type, int to,
                  std::string_view label = {});
  Work recv_async(void* data, std::size_t count, DataType type, int from,
                  std::string_view label = {});

  // The length and the beginning of rank r's block when `count` elements are divided among all
  // ranks. If they do not divide evenly, the first blocks have one more element.
  std::size_t block_size(std::size_t count, int r) const;
  std::size_t block_begin(std::size_t count, int r) const;

  // ---- The same on spans, whose lengths are checked.
  template <Element T>
  void all_reduce(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    all_reduce(data.data(), data.data(), data.size(), data_type_of<T>(), op);
  }
  template <Element T>
  void all_reduce(std::span<const T> input, std::span<T> output, ReduceOp op = ReduceOp::sum) {
    require_equal("all_reduce", input.size(), output.size());
    all_reduce(input.data(), output.data(), input.size(), data_type_of<T>(), op);
  }
  template <Element T>
  void reduce_scatter(std::span<const T> input, std::span<T> output, ReduceOp op = ReduceOp::sum) {
    require_equal("reduce_scatter", block_size(input.size(), rank()), output.size());
    reduce_scatter(input.data(), output.data(), input.size(), data_type_of<T>(), op);
  }
  template <Element T>
  void all_gather(std::span<const T> input, std::span<T> output) {
    require_equal("all_gather", block_size(output.size(), rank()), input.size());
    all_gather(input.data(), output.data(), output.size(), data_type_of<T>());
  }
  template <Element T>
  void broadcast(std::span<T> data, int root) {
    broadcast(data.data(), data.size(), data_type_of<T>(), root);
  }
  template <Element T>
  void reduce(std::span<const T> input, std::span<T> output, int root,
              ReduceOp op = ReduceOp::sum) {
    if (rank() == root) require_equal("reduce", input.size(), output.size());
    reduce(input.data(), output.data(), input.size(), data_type_of<T>(), root, op);
  }
  template <Element T>
  void gather(std::span<const T> input, std::span<T> output, int root) {
    if (rank() == root) require_equal("gather", input.size() * size(), output.size());
    gather(input.data(), output.data(), input.size() * size(), data_type_of<T>(), root);
  }
  template <Element T>
  void scatter(std::span<const T> input, std::span<T> output, int root) {
    if (rank() == root) require_equal("scatter", output.size() * size(), input.size());
    scatter(input.data(), output.data(), output.size() * size(), data_type_of<T>(), root);
  }
  template <Element T>
  void all_to_all(std::span<const T> input, std::span<T> output) {
    require_equal("all_to_all", input.size(), output.size());
    all_to_all(input.data(), output.data(), input.size(), data_type_of<T>());
  }
  template <Element T>
  void send(std::span<const T> data, int to) {
    send(data.data(), data.size(), data_type_of<T>(), to);
  }
  template <Element T>
  void recv(std::span<T> data, int from) {
    recv(data.data(), data.size(), data_type_of<T>(), from);
  }
  template <Element T>
  Work all_reduce_async(std::span<T> data, ReduceOp op = ReduceOp::sum) {
    return all_reduce_async(data.data(), data.data(), data.size(), data_type_of<T>(), op);
  }

  // ---- Sub-groups and devices

  // Divides the group: ranks that pass the same color form a new group, ordered by key and, for
  // equal keys, by rank. Every rank must call it and gets its own group, which may consist of
  // itself alone. The new group has its own connections. So all groups can be used at the same
  // time, and the new one may outlive this one. It also gets a device's backend and fence, if this
  // group has them. A device mesh is two splits:
  //     ProcessGroup row = group.split(rank / columns), column = group.split(rank % columns);
  // Throws Error if the backend has no sub-groups (gloo, mpi) or a member does not connect in time.
  ProcessGroup split(int color, int key = 0);

  // Makes calls on memory of a device go over a backend of their own (host_and_device.hpp).
  // `make_backend` makes it over a group with the same ranks; it is called now, and by split() for
  // each sub-group. No call may be under way. Throws Error and leaves the group unchanged if the
  // backend cannot be made or does not have the same rank and size.
  using MakeBackend = std::function<std::unique_ptr<Backend>(ProcessGroup& group)>;
  void add_device(MakeBackend make_backend, IsDeviceMemory is_device_memory);

  // From the next call on, each call first waits until the device has done the work that it had
  // been given when the call was made (work.hpp).
  void set_fence(Fence fence);

  // ---- Algorithms, failures, figures

  // Forces algorithms from the next call on. Every rank must do so at the same point.
  void set_algorithms(AlgorithmSelection algorithms);

  // The algorithm of a call with this `count`, the same on all ranks.
  const Algorithm& algorithm_for(Collective collective, std::size_t count, DataType type) const;

  // Ends the calls of this rank that are under way, and makes the calls of all other ranks throw
  // `cause`.
  void abort(const std::string& cause) noexcept;

  Traffic traffic() const;  // what this rank has sent since the group was made
  CallTimes times() const;

 private:
  struct State;
  static void require_equal(const char* collective, std::size_t expected, std::size_t seen);

  std::unique_ptr<State> state_;
};

// Runs `body` on `size` ranks, each a thread of this process with a group over the threads
// transport, and returns when all have ended. If `body` throws on a rank or a thread cannot be
// started, the other ranks' calls fail, and run_threads throws the first cause.
void run_threads(int size, const std::function<void(ProcessGroup&)>& body);
void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options);

}  // namespace ringside::collectives

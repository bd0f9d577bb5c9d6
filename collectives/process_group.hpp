// The ranks of a job and the collectives among them, with the names of torch.distributed.
//
//     ProcessGroup group = ProcessGroup::from_environment();   // started by ringside launch,
//     std::vector<float> gradients = ...;                      // torchrun, mpirun or srun
//     group.all_reduce(std::span(gradients), ReduceOp::avg);
//     group.finish();
//
// Every rank makes the same calls in the same order. Results are the same on all ranks, bit for
// bit. One thread at a time may use a group, and no child made by fork(). When a call fails on any
// rank, all ranks' calls throw Error with the first cause within the timeout, now and later.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "collectives/buffer.hpp"

namespace ringside::collectives {

class AlgorithmSelection;
class Backend;
class RankNames;
class Work;
enum class Collective : std::uint8_t;
struct Algorithm;
struct CallTimes;
struct Connections;
struct DeviceCalls;
struct GroupOptions;
struct RankInfo;
struct Traffic;

class ProcessGroup {
 public:
  // Connects to the other ranks of the job, as the environment describes it, over the backend that
  // RINGSIDE_BACKEND names: "tcp", "shm" (shared memory), or "auto", the default: shm if all ranks
  // run on one host, otherwise tcp. Blocks until all ranks have come; throws the errors of
  // rank_info.hpp and rendezvous.hpp.
  static ProcessGroup from_environment();
  static ProcessGroup over(std::string_view backend, const RankInfo& rank_info);
  static ProcessGroup over(std::string_view backend, const RankInfo& rank_info,
                           const GroupOptions& options);
  static ProcessGroup over(Connections connections, const GroupOptions& options);

  explicit ProcessGroup(std::unique_ptr<Backend> backend);
  ProcessGroup(std::unique_ptr<Backend> backend, AlgorithmSelection algorithms);
  ProcessGroup(ProcessGroup&& other) noexcept;
  ProcessGroup& operator=(ProcessGroup&& other) noexcept;
  ~ProcessGroup();  // waits for the calls that are under way

  int rank() const;
  int size() const;
  std::string backend_name() const;

  // ---- Collectives. Calls block. Buffers must not overlap, except where noted. A label names the
  // data in error messages; all ranks must give the same.

  // output = the reduction of all ranks' inputs. Output may be input.
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                  std::string_view label = {});
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, std::string_view label = {});

  // The input has a block for each rank. output = the reduction of block rank() over all ranks. It
  // may be that block of the input. Every rank gives all counts of unequal blocks (buffer.hpp),
  // here and wherever only one of the two buffers has blocks.
  void reduce_scatter(ConstBlocks input, Buffer output, ReduceOp op = ReduceOp::sum,
                      std::string_view label = {});

  // The inverse: output = the inputs of all ranks, in the order of ranks. The input may be block
  // rank() of the output.
  void all_gather(ConstBuffer input, Blocks output, std::string_view label = {});

  // data = the root's data.
  void broadcast(Buffer data, int root, std::string_view label = {});

  // output on the root = the reduction of all ranks' inputs. Other ranks' outputs are not used.
  // Output may be input.
  void reduce(ConstBuffer input, Buffer output, int root, ReduceOp op = ReduceOp::sum,
              std::string_view label = {});

  // output on the root = the inputs of all ranks, in the order of ranks. Without counts they have
  // equal lengths. Other ranks' outputs are not used. The input may be block rank() of the output.
  void gather(ConstBuffer input, Blocks output, int root, std::string_view label = {});

  // The inverse: output = block rank() of the root's input. Other ranks' inputs are not used. The
  // output may be that block.
  void scatter(ConstBlocks input, Buffer output, int root, std::string_view label = {});

  // Block i of the output = block rank() of rank i's input. Without counts all blocks have the same
  // length, and output may be input. With counts, for both buffers, each rank knows only its own:
  // how many elements it sends to each rank, and how many it receives from each.
  void all_to_all(ConstBlocks input, Blocks output, std::string_view label = {});

  // Returns when every rank has called it.
  void barrier();

  // A barrier for the end of the work. Throws Error also if two ranks differ in one of their last
  // 48 calls. A rank whose own part of a wrong call is done would not notice it otherwise.
  void finish();

  // Moves data from the rank that calls send(data, to) to the rank that calls recv(data, from).
  // Only these two take part. What one rank sends to another arrives in order.
  void send(ConstBuffer data, int to, std::string_view label = {});
  void recv(Buffer data, int from, std::string_view label = {});

  // The same calls as Work (work.hpp): they return at once. Do not touch the buffers until the Work
  // is done.
  Work all_reduce_async(Buffer data, ReduceOp op = ReduceOp::sum, std::string_view label = {});
  Work reduce_scatter_async(ConstBlocks input, Buffer output, ReduceOp op = ReduceOp::sum,
                            std::string_view label = {});
  Work all_gather_async(ConstBuffer input, Blocks output, std::string_view label = {});
  Work broadcast_async(Buffer data, int root, std::string_view label = {});
  Work reduce_async(ConstBuffer input, Buffer output, int root, ReduceOp op = ReduceOp::sum,
                    std::string_view label = {});
  Work gather_async(ConstBuffer input, Blocks output, int root, std::string_view label = {});
  Work scatter_async(ConstBlocks input, Buffer output, int root, std::string_view label = {});
  Work all_to_all_async(ConstBlocks input, Blocks output, std::string_view label = {});
  Work barrier_async();
  // They wait in this group's queue like the others: what must not wait for another message uses
  // another group.
  Work send_async(ConstBuffer data, int to, std::string_view label = {});
  Work recv_async(Buffer data, int from, std::string_view label = {});

  // The length and the beginning of rank r's block when `count` elements are divided among all
  // ranks. If they do not divide evenly, the first blocks have one more element.
  std::size_t block_size(std::size_t count, int r) const;
  std::size_t block_begin(std::size_t count, int r) const;

  // ---- Sub-groups, devices, failures, figures

  // Divides the group: ranks that pass the same color form a new group, ordered by key and, for
  // equal keys, by rank. Every rank must call it and gets its own group, which may consist of
  // itself alone. The new group has its own connections. So all groups can be used at the same
  // time, and the new one may outlive this one. A device mesh is two splits:
  //     ProcessGroup row = group.split(rank / columns), column = group.split(rank % columns);
  // Throws Error if the backend has no sub-groups (gloo, mpi) or a member does not connect in time.
  ProcessGroup split(int color, int key = 0);

  // From the next call on, errors name each rank with its coordinates in a mesh of the whole job,
  // "dp=2,tp=4", whose last axis varies fastest. New sub-groups do too. No call may be under way.
  void set_mesh(std::string_view mesh);

  // From the next call on, makes calls on memory of a device (device_calls.hpp), here and in new
  // sub-groups. No call may be under way. If it throws, the group is unchanged.
  void use_device(DeviceCalls device);

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
  friend class Messages;  // messages.hpp
  void set_names(const RankNames& names);

  struct State;
  std::unique_ptr<State, void (*)(State*)> state_;  // not destroyed in a child made by fork()
};

}  // namespace ringside::collectives

// What both ways of cuda_ipc share: this rank's place among the others, and its waits.
#pragma once

#include <atomic>
#include <memory>

#include <cuda_runtime_api.h>

#include "collectives/call.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/cuda/ipc/placement.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/process_group.hpp"

namespace ringside::collectives::cuda {

class IpcRank {
 public:
  // A collective call over `group`, which it keeps.
  IpcRank(ProcessGroup group, int local_rank, const CudaIpcOptions& options);

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  // The rank `steps` after this one, around.
  int after(int steps) const { return (rank() + steps) % size(); }

  // Shows every rank the call of every other; throws Error if they differ.
  void compare(const Call& call);

  // How many multiprocessors spinning kernels of the process's groups have taken.
  static std::atomic<int> taken;

  // For a wait: throws Error if the call was interrupted or, from time to time, if the process of a
  // rank has ended.
  void look(const Call& call);
  void interrupt(const std::string& cause) noexcept;  // from another thread

  const CudaIpcOptions options;
  const Device device;
  const int resident_blocks;
  ProcessGroup group;  // of the hosts
  const Placement placement;
  bool failed = false;

 private:
  std::uint64_t calls_ = 0, looks_ = 0;
  FirstCause<Error> interruption_;
};

// A way to carry out calls. Buffers are memory of this rank's GPU.
class IpcPath {
 public:
  virtual ~IpcPath() = default;
  // Returns the bytes that leave this rank.
  virtual std::uint64_t enqueue(const Call& call, const void* input, void* output) = 0;
  virtual void finish(const Call& last) = 0;  // waits for all calls so far
  virtual cudaStream_t stream() const = 0;
  // After a failure: ends what is on the stream, or marks the device as stuck.
  virtual void give_up() noexcept = 0;
};
std::unique_ptr<IpcPath> make_copies(IpcRank& rank);
std::unique_ptr<IpcPath> make_spinning(IpcRank& rank);

}  // namespace ringside::collectives::cuda

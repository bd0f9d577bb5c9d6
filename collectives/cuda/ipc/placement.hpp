// Where the ranks of cuda_ipc run: on which host, in which process, on which GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/system/file_descriptor.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::collectives {
class ProcessGroup;
}

namespace ringside::collectives::cuda {

class Placement {
 public:
  // A collective call over `meeting`. `blocks`: how many blocks a spinning kernel may have on this
  // rank's GPU. Throws Error if the ranks run on several hosts, or if two are threads of one
  // process, or if they were given different `area_bytes`.
  Placement(ProcessGroup& meeting, const Device& device, int blocks, std::size_t area_bytes);

  // Why kernels cannot spin: "ranks 0 and 2 share GPU 0000:1b:00.0, UUID 5f3c2a10". Nothing if they
  // can.
  const std::optional<std::string>& why_copies() const { return why_copies_; }

  int least_blocks() const { return least_blocks_; }  // of all ranks

  // Throws RankFailure if the process of a rank has ended: a kernel spins on its flags, which
  // nobody writes any more. A process in another namespace of process IDs is not watched.
  void require_all_alive(const std::string& during) const;

 private:
  std::optional<std::string> why_copies_;
  int least_blocks_ = 0;
  std::vector<FileDescriptor> processes_;  // [rank] a pidfd, or none
};

}  // namespace ringside::collectives::cuda

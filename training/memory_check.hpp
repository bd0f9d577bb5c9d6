// Checks that there is enough memory, before any is allocated.
#pragma once

#include <optional>
#include <string>

#include "autograd/tensor/device.hpp"
#include "training/memory_need.hpp"

namespace ringside::training {

// "parameters 6.3 MB, gradients 6.3 MB, optimizer 12.5 MB", with sizes as `text_of` writes them.
std::string memory_in_parts(const MemoryNeed& need, std::string (*text_of)(double bytes));

// Throws Error, with the needed and the available memory and `advice`, if so many ranks do not fit
// into this machine's memory, with the copy of a checkpoint that is written beside them. The limit
// is in 10^9 bytes for all of them; 0: do not check; none: the available memory. On a GPU, checks
// the ranks that share this rank's GPU against its free memory. The check itself allocates some GPU
// memory, so a launcher should not call it.
void require_memory(const MemoryNeed& of_a_rank, int ranks_here,
                    std::optional<double> limit_gigabytes, const std::string& advice,
                    autograd::Device device = autograd::Device::cpu, double checkpoint_copy = 0);

}  // namespace ringside::training

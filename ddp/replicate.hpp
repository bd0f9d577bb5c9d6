// The start of every data-parallel method: all ranks hold the same model.
#pragma once

#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

// Copies rank 0's parameters, frozen ones included, and buffers to all other ranks, with one
// broadcast for each tensor. Throws Error that names the first tensor in which the ranks' models
// differ.
void replicate(const autograd::Module& module, collectives::ProcessGroup& group);

// The parameters that require a gradient, in the order of registration. A tied parameter is listed
// once.
std::vector<autograd::NamedTensor> trained_parameters(const autograd::Module& module);

}  // namespace ringside::ddp

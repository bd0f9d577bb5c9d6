// Step dumps: the parameters and gradients of one step as a safetensors file, to compare with
// another run or another framework.
#pragma once

#include <filesystem>

#include "autograd/nn/module.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::training {

// Every gradient, under its parameter's name. Parameters without a gradient are left out.
void save_gradients(const std::filesystem::path& path, const autograd::Module& model);

// Every parameter as "parameter.<name>" and every gradient as "gradient.<name>". Parameters without
// a gradient have only the former. The two functions visit them one at a time, because they may be
// sharded, and all are kept in memory until they are written. An empty path writes nothing, for the
// ranks that only contribute their shards.
void dump_step(const std::filesystem::path& path, const transformer::VisitTensors& visit_parameters,
               const transformer::VisitTensors& visit_gradients);

}  // namespace ringside::training

// All trained parameters of a module in one bucket: the layout of the flat memory in which the
// methods of this room send.
#pragma once

#include <string_view>

#include "autograd/nn/module.hpp"
#include "ddp/buckets.hpp"

namespace ringside::ddp {

// Throws Error, with the name of the method, unless all trained parameters have one dtype, fp32 or
// fp64, and lie on the CPU.
Bucket whole_bucket(const autograd::Module& module, std::string_view method);

}  // namespace ringside::ddp

// How stage 3 divides a model into units. (FSDP's auto wrap policy.)
//
// A unit is a set of parameters that are gathered together and freed together. Each module that is
// wrapped makes a unit; what remains, such as the last norm and the head, is the root unit:
//
//     wrapped     embed_tokens    layers.0    layers.1
//     units       embed_tokens  | layers.0  | layers.1  | root: norm, lm_head
#pragma once

#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "ddp/buckets.hpp"

namespace ringside::zero {

// The modules to wrap:
// - the elements of the model's lists, such as layers.0 and layers.1, but not lists within them;
// - every module whose backward does not read its parameters, such as an embedding. It is needed
//   only at the beginning of forward.
std::vector<autograd::NamedModule> default_wrap_policy(autograd::Module& module);

// The wrapped module that contains the parameter or module `name`, or is it; nullptr if none does.
const autograd::NamedModule* wrapped_around(const std::string& name,
                                            const std::vector<autograd::NamedModule>& wrapped);

// Whether the module `name` is `outer`, or lies within it. Every module lies within "", the model.
bool is_within(const std::string& name, const std::string& outer);

struct Unit {
  std::string name;  // of its module, or "root"
  std::vector<autograd::NamedTensor> trained, frozen;
};

// The model's units in the order of backward. A parameter with several names (tied weights) belongs
// to a wrapped module only if that contains all its names; otherwise it belongs to the root.
std::vector<Unit> divide_into_units(const autograd::Module& module,
                                    const std::vector<autograd::NamedModule>& wrapped);

}  // namespace ringside::zero

// The memories that device_memory() chooses from.
#pragma once

#include "autograd/device_memory.hpp"

namespace ringside::autograd {

DeviceMemory& emulated_memory();
DeviceMemory& cuda_memory();  // throws Error with a sentence where this build or this machine has no GPU

}  // namespace ringside::autograd

// in_phase: runs one part of a training step under a name, in the profile and in the trace.
#pragma once

#include "autograd/kernels/profile.hpp"
#include "base/trace/trace.hpp"

namespace ringside::training {

template <class Part>
void in_phase(const char* name, Part part) {
  autograd::Profile::begin();
  const TracedPhase phase(name);
  part();
}

}  // namespace ringside::training

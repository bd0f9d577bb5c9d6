#include "autograd/tensor/grad_mode.hpp"

namespace ringside::autograd {

namespace {
thread_local bool enabled_here = true;
}

bool grad_enabled() {
  return enabled_here;
}

NoGrad::NoGrad() : here_(enabled_here, false) {}

EnableGrad::EnableGrad() : here_(enabled_here, true) {}

}  // namespace ringside::autograd

#include "autograd/tensor/grad_mode.hpp"

#include <utility>

namespace ringside::autograd {

namespace {
thread_local bool enabled_here = true;
}

bool grad_enabled() {
  return enabled_here;
}

NoGrad::NoGrad() : before_(std::exchange(enabled_here, false)) {}
NoGrad::~NoGrad() {
  enabled_here = before_;
}

EnableGrad::EnableGrad() : before_(std::exchange(enabled_here, true)) {}
EnableGrad::~EnableGrad() {
  enabled_here = before_;
}

}  // namespace ringside::autograd

// Grad mode: whether ops record history on this thread.
#pragma once

#include "base/scoped_value.hpp"

namespace ringside::autograd {

// On by default, off within backward().
bool grad_enabled();

// While alive, ops on this thread record no history: for evaluation, generation, optimizer steps.
class NoGrad {
 public:
  NoGrad();

 private:
  ScopedValue<bool> here_;
};

// The opposite: while alive, ops record history, also inside the scope of a NoGrad.
class EnableGrad {
 public:
  EnableGrad();

 private:
  ScopedValue<bool> here_;
};

}  // namespace ringside::autograd

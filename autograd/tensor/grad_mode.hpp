// Grad mode: whether ops record history on this thread.
#pragma once

namespace ringside::autograd {

// On by default, off within backward().
bool grad_enabled();

// While alive, ops on this thread record no history: for evaluation, generation, optimizer steps.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// The opposite: while alive, ops record history, also inside the scope of a NoGrad.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};

}  // namespace ringside::autograd

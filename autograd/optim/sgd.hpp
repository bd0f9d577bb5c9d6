// SGD: stochastic gradient descent, optionally with momentum.
#pragma once

#include "autograd/optim/optimizer.hpp"

namespace ringside::autograd {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};

// As torch.optim.SGD:
//
//     g += weight_decay * p
//     m  = momentum * m + g            with momentum; m = 0 at first
//     g  = m                           with momentum; for Nesterov's: g += momentum * m
//     p -= lr * g
//
// State with momentum: "momentum_buffer" (m), "step"; without: none.
class SGD final : public Optimizer {
 public:
  explicit SGD(std::vector<ParameterGroup> groups, SgdOptions options = {});

 private:
  void update(Device device, const std::vector<Update>& updates) override;
  SgdOptions options_;
};

}  // namespace ringside::autograd

// AdamW: Adam with decoupled weight decay. Loshchilov and Hutter (ICLR 2019), Algorithm 2.
#pragma once

#include "autograd/optim/optimizer.hpp"

namespace ringside::autograd {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

// As torch.optim.AdamW, which multiplies the decay by the learning rate:
//
//     p -= lr * weight_decay * p
//     m  = beta1 m + (1 - beta1) g
//     v  = beta2 v + (1 - beta2) g^2
//     p -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// State: "exp_avg" (m), "exp_avg_sq" (v), "step" (t).
class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<ParameterGroup> groups, AdamWOptions options = {});

 private:
  void update(Device device, const std::vector<Update>& updates) override;
  AdamWOptions options_;
};

}  // namespace ringside::autograd

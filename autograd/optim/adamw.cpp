#include "autograd/optim/adamw.hpp"

#include <cmath>

#include "autograd/kernels/device_kernels.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

AdamW::AdamW(std::vector<ParameterGroup> groups, AdamWOptions options)
    : Optimizer(std::move(groups), {"exp_avg", "exp_avg_sq"}), options_(options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  require(is_beta(options.beta1) && is_beta(options.beta2) && options.eps >= 0,
          "AdamW: expected betas in [0, 1) and eps >= 0, got {}, {} and {}", options.beta1,
          options.beta2, options.eps);
}

// The formula of the header with its constants computed once for all elements.
void AdamW::update(Device device, const std::vector<Update>& updates) {
  std::vector<AdamWUpdate> all;
  for (const auto& [slot, group] : updates) {
    const double t = *slot.step.data<std::int32_t>();
    const double correction1 = 1 - std::pow(options_.beta1, t),
                 correction2 = 1 - std::pow(options_.beta2, t);
    all.push_back({.p = slot.values(),
                   .g = slot.parameter.tensor.grad(),
                   .m = slot.state[0].tensor,
                   .v = slot.state[1].tensor,
                   .parameter = slot.bf16_parameter(),
                   .keep = 1 - group.learning_rate * group.weight_decay,
                   .step_size = group.learning_rate / correction1,
                   .scale_v = 1 / std::sqrt(correction2)});
  }
  device_kernels(device).adamw({.beta1 = options_.beta1,
                                .beta2 = options_.beta2,
                                .eps = options_.eps,
                                .scale = gradient_scale()},
                               all);
}

}  // namespace ringside::autograd

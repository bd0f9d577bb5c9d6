#include "autograd/optim/adamw.hpp"

#include <cmath>
#include <type_traits>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

AdamW::AdamW(std::vector<ParameterGroup> groups, AdamWOptions options)
    : Optimizer(std::move(groups), {"exp_avg", "exp_avg_sq"}), options_(options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  require(is_beta(options.beta1) && is_beta(options.beta2) && options.eps >= 0,
          "AdamW: expected betas in [0, 1) and eps >= 0, got {}, {} and {}", options.beta1,
          options.beta2, options.eps);
}

// The formula of the header with its constants computed once for all elements:
//
//     p = keep p - step_size m / (sqrt(v) scale_v + eps)
void AdamW::update(const Slot& slot, const ParameterGroup& group) {
  const Tensor &parameter = slot.values(), &exp_avg = slot.state[0].tensor,
               &exp_avg_sq = slot.state[1].tensor;
  const double t = *slot.step.data<std::int32_t>();
  const double correction1 = 1 - std::pow(options_.beta1, t),
               correction2 = 1 - std::pow(options_.beta2, t);
  dispatch_stored(slot.parameter.tensor.dtype(), "AdamW", [&](auto zero) {
    using S = decltype(zero);  // of the parameter and its gradient
    using T = Compute<S>;      // of the master and the state
    T *const p = parameter.data<T>(), *const m = exp_avg.data<T>(), *const v = exp_avg_sq.data<T>();
    S* const stored = slot.parameter.tensor.data<S>();  // p itself if there is no master
    const S* const g = slot.parameter.tensor.grad().data<S>();
    const T beta1 = static_cast<T>(options_.beta1), beta2 = static_cast<T>(options_.beta2),
            eps = static_cast<T>(options_.eps);
    const T keep = static_cast<T>(1 - group.learning_rate * group.weight_decay),
            scale = static_cast<T>(gradient_scale());
    const T step_size = static_cast<T>(group.learning_rate / correction1),
            scale_v = static_cast<T>(1 / std::sqrt(correction2));
    parallel_for(parameter.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T gi = scale * g[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gi;
        v[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
        p[i] = keep * p[i] - step_size * m[i] / (std::sqrt(v[i]) * scale_v + eps);
        if constexpr (!std::is_same_v<S, T>) stored[i] = p[i];
      }
    });
  });
}

void AdamW::update_on(Device device, const std::vector<Update>& updates) {
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
                   .keep = static_cast<float>(1 - group.learning_rate * group.weight_decay),
                   .step_size = static_cast<float>(group.learning_rate / correction1),
                   .scale_v = static_cast<float>(1 / std::sqrt(correction2))});
  }
  device_kernels(device).adamw({.beta1 = static_cast<float>(options_.beta1),
                                .beta2 = static_cast<float>(options_.beta2),
                                .eps = static_cast<float>(options_.eps),
                                .scale = static_cast<float>(gradient_scale())},
                               all);
}

}  // namespace ringside::autograd

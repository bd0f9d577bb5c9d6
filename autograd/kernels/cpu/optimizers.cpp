// The update rules of optimizers, one pass over memory for each parameter.
#include <cmath>
#include <type_traits>

#include "autograd/kernels/cpu/cpu_kernels.hpp"
#include "autograd/kernels/cpu/for_each_element.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t update_grain = 1 << 16;  // elements that are enough work for one more thread

// The parameter that holds the values of `update` rounded, or the values themselves.
template <class Update>
const Tensor& stored_in(const Update& update) {
  return update.parameter.defined() ? update.parameter : update.p;
}

}  // namespace

// In both functions S is the dtype of the parameter and its gradient, T that of its values and
// state: those of a bf16 parameter are fp32.
//
//     p = keep p - step_size m / (sqrt(v) scale_v + eps)        formulas: optim/adamw.hpp
void CpuKernels::adamw(const AdamWStep& step, std::span<const AdamWUpdate> updates) const {
  for (const AdamWUpdate& update : updates)
    dispatch_stored(stored_in(update).dtype(), "AdamW", [&]<class S>(S) {
      using T = Compute<S>;
      T *const p = update.p.data<T>(), *const m = update.m.data<T>(), *const v = update.v.data<T>();
      S* const stored = stored_in(update).template data<S>();
      const S* const g = update.g.data<S>();
      const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2),
              eps = static_cast<T>(step.eps), scale = static_cast<T>(step.scale);
      const T keep = static_cast<T>(update.keep), step_size = static_cast<T>(update.step_size),
              scale_v = static_cast<T>(update.scale_v);
      for_each_element(update.p.elements(), update_grain, [=](std::int64_t i) {
        const T gi = scale * g[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gi;
        v[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
        p[i] = keep * p[i] - step_size * m[i] / (std::sqrt(v[i]) * scale_v + eps);
        if constexpr (!std::is_same_v<S, T>) stored[i] = p[i];
      });
    });
}

void CpuKernels::sgd(const SgdStep& step, std::span<const SgdUpdate> updates) const {
  for (const SgdUpdate& update : updates)
    dispatch_stored(stored_in(update).dtype(), "SGD", [&]<class S>(S) {
      using T = Compute<S>;
      T* const p = update.p.data<T>();
      S* const stored = stored_in(update).template data<S>();
      const S* const g = update.g.data<S>();
      const T lr = static_cast<T>(update.learning_rate), decay = static_cast<T>(update.decay),
              momentum = static_cast<T>(step.momentum), scale = static_cast<T>(step.scale);
      const bool nesterov = step.nesterov;
      if (!update.m.defined())
        return for_each_element(update.p.elements(), update_grain, [=](std::int64_t i) {
          p[i] -= lr * (scale * g[i] + decay * p[i]);
          if constexpr (!std::is_same_v<S, T>) stored[i] = p[i];
        });
      T* const m = update.m.data<T>();
      for_each_element(update.p.elements(), update_grain, [=](std::int64_t i) {
        const T gi = scale * g[i] + decay * p[i];
        m[i] = momentum * m[i] + gi;
        p[i] -= lr * (nesterov ? gi + momentum * m[i] : m[i]);
        if constexpr (!std::is_same_v<S, T>) stored[i] = p[i];
      });
    });
}

}  // namespace ringside::autograd

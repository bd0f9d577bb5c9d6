#include "autograd/optim/sgd.hpp"

#include <type_traits>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

SGD::SGD(std::vector<ParameterGroup> groups, SgdOptions options)
    : Optimizer(std::move(groups), options.momentum == 0
                                       ? std::vector<std::string>{}
                                       : std::vector<std::string>{"momentum_buffer"}),
      options_(options) {
  require(options.momentum >= 0 && (options.momentum > 0 || !options.nesterov),
          "SGD: expected momentum >= 0, and > 0 for Nesterov's, got {}", options.momentum);
}

void SGD::update(const Slot& slot, const ParameterGroup& group) {
  const Tensor momentum_buffer = options_.momentum == 0 ? Tensor() : slot.state[0].tensor;
  const Tensor& parameter = slot.values();
  dispatch_stored(slot.parameter.tensor.dtype(), "SGD", [&](auto zero) {
    using S = decltype(zero);  // of the parameter and its gradient
    using T = Compute<S>;      // of the master and the state
    T* const p = parameter.data<T>();
    S* const stored = slot.parameter.tensor.data<S>();  // p itself if there is no master
    const S* const g = slot.parameter.tensor.grad().data<S>();
    const T lr = static_cast<T>(group.learning_rate), decay = static_cast<T>(group.weight_decay),
            momentum = static_cast<T>(options_.momentum), scale = static_cast<T>(gradient_scale());
    const bool nesterov = options_.nesterov;
    T* const m = momentum_buffer.defined() ? momentum_buffer.data<T>() : nullptr;
    parallel_for(parameter.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
      if (!m) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          p[i] -= lr * (scale * g[i] + decay * p[i]);
          if constexpr (!std::is_same_v<S, T>) stored[i] = p[i];
        }
        return;
      }
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T gi = scale * g[i] + decay * p[i];
        m[i] = momentum * m[i] + gi;
        p[i] -= lr * (nesterov ? gi + momentum * m[i] : m[i]);
        if constexpr (!std::is_same_v<S, T>) stored[i] = p[i];
      }
    });
  });
}

void SGD::update_on(Device device, const std::vector<Update>& updates) {
  std::vector<SgdUpdate> all;
  for (const auto& [slot, group] : updates)
    all.push_back({.p = slot.values(),
                   .g = slot.parameter.tensor.grad(),
                   .m = options_.momentum == 0 ? Tensor() : slot.state[0].tensor,
                   .parameter = slot.bf16_parameter(),
                   .learning_rate = static_cast<float>(group.learning_rate),
                   .decay = static_cast<float>(group.weight_decay)});
  device_kernels(device).sgd({.momentum = static_cast<float>(options_.momentum),
                              .scale = static_cast<float>(gradient_scale()),
                              .nesterov = options_.nesterov},
                             all);
}

}  // namespace ringside::autograd

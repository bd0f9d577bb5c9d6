#include "autograd/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/parallel.hpp"
#include "autograd/tensor/bf16.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

namespace {

constexpr std::int64_t grain =
    1 << 16;  // elements that make a piece of work worth a thread of its own

}  // namespace

Optimizer::Optimizer(std::vector<ParameterGroup> groups, const std::vector<std::string>& kinds,
                     bool keeps_masters)
    : kinds_(kinds), keeps_masters_(keeps_masters) {
  for (ParameterGroup& group : groups) Optimizer::add_group(std::move(group));
  const bool any = std::any_of(groups_.begin(), groups_.end(), [](const ParameterGroup& group) {
    return !group.parameters.empty();
  });
  require(any, "optimizer: expected at least one parameter, got none");
}

void Optimizer::add_group(ParameterGroup group) {
  std::vector<Tensor> seen;
  for (const ParameterGroup& before : groups_)
    for (const NamedTensor& parameter : before.parameters) seen.push_back(parameter.tensor);
  const MemoryScope state(MemoryKind::optimizer_state);
  std::vector<Slot> slots;
  for (const NamedTensor& parameter : group.parameters) {
    const Tensor& p = parameter.tensor;
    require(p.dtype() != DType::int32 && p.is_contiguous(),
            "optimizer: expected '{}' to be contiguous and fp32, fp64 or bf16, got {} {} with "
            "strides {}",
            parameter.name, name_of(p.dtype()), p.shape(), p.strides());
    require(std::none_of(seen.begin(), seen.end(),
                         [&](const Tensor& other) { return other.is_same(p); }),
            "optimizer: '{}' is listed twice; it would be updated twice", parameter.name);
    seen.push_back(p);
    Slot& slot = slots.emplace_back(
        Slot{parameter, {}, keeps_masters_ && p.dtype() == DType::bf16 ? wide(p) : Tensor()});
    for (const std::string& kind : kinds_)
      slot.state.push_back({kind, Tensor::zeros(p.shape(), slot.values().dtype(), p.device())});
    if (!kinds_.empty())
      slot.state.push_back(
          {"step", Tensor::zeros({1}, DType::int32)});  // on the host, which reads it
  }
  groups_.push_back(std::move(group));
  slots_.push_back(std::move(slots));
}

void Optimizer::step() {
  const NoGrad no_history;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Slot& slot : slots_[g]) {
      if (!slot.parameter.tensor.grad().defined()) continue;
      if (!slot.state.empty()) ++*slot.state.back().tensor.data<std::int32_t>();
      update(slot, groups_[g]);
      if (slot.master.defined() && slot.parameter.tensor.device() == Device::cpu)
        slot.parameter.tensor.copy_(rounded(slot.master, DType::bf16));
    }
  }
  gradient_scale_ = 1;
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const auto& slots : slots_)
    for (const Slot& slot : slots) slot.parameter.tensor.zero_grad(set_to_none);
}

void Optimizer::set_learning_rate(double learning_rate) {
  for (ParameterGroup& group : groups_) group.learning_rate = learning_rate;
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all;
  for (const auto& slots : slots_)
    for (const Slot& slot : slots) {
      for (const NamedTensor& entry : slot.state)
        all.push_back({slot.parameter.name + "." + entry.name, entry.tensor});
      if (slot.master.defined()) all.push_back({slot.parameter.name + ".master", slot.master});
    }
  return all;
}

Tensor Optimizer::Slot::gradient() const {
  return wide(parameter.tensor.grad());
}

// --- SGD
// ----------------------------------------------------------------------------------------------------------------------------

SGD::SGD(std::vector<ParameterGroup> groups, SgdOptions options)
    : Optimizer(std::move(groups), options.momentum == 0
                                       ? std::vector<std::string>{}
                                       : std::vector<std::string>{"momentum_buffer"}),
      options_(options) {
  require(options.momentum >= 0 && (options.momentum > 0 || !options.nesterov),
          "SGD: expected momentum >= 0, and > 0 for Nesterov's, got {}", options.momentum);
}

void SGD::update(const Slot& slot, const ParameterGroup& group) {
  if (slot.parameter.tensor.device() != Device::cpu) {
    const SgdStep step{.learning_rate = static_cast<float>(group.learning_rate),
                       .decay = static_cast<float>(group.weight_decay),
                       .momentum = static_cast<float>(options_.momentum),
                       .scale = static_cast<float>(gradient_scale()),
                       .nesterov = options_.nesterov};
    return device_kernels(slot.parameter.tensor.device())
        .sgd(step, slot.values(), slot.parameter.tensor.grad(),
             slot.state.empty() ? Tensor() : slot.state[0].tensor, slot.kept());
  }
  const Tensor &parameter = slot.values(), gradient = slot.gradient();
  dispatch(parameter.dtype(), "SGD", [&](auto zero) {
    using T = decltype(zero);
    T* const p = parameter.data<T>();
    const T* const g = gradient.data<T>();
    const T lr = static_cast<T>(group.learning_rate), decay = static_cast<T>(group.weight_decay),
            momentum = static_cast<T>(options_.momentum), scale = static_cast<T>(gradient_scale());
    const bool nesterov = options_.nesterov;
    T* const m = slot.state.empty() ? nullptr : slot.state[0].tensor.data<T>();
    parallel_for(parameter.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
      if (!m) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) p[i] -= lr * (scale * g[i] + decay * p[i]);
        return;
      }
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T gi = scale * g[i] + decay * p[i];
        m[i] = momentum * m[i] + gi;
        p[i] -= lr * (nesterov ? gi + momentum * m[i] : m[i]);
      }
    });
  });
}

// --- AdamW
// --------------------------------------------------------------------------------------------------------------------------

AdamW::AdamW(std::vector<ParameterGroup> groups, AdamWOptions options)
    : Optimizer(std::move(groups), {"exp_avg", "exp_avg_sq"}), options_(options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  require(is_beta(options.beta1) && is_beta(options.beta2) && options.eps >= 0,
          "AdamW: expected betas in [0, 1) and eps >= 0, got {}, {} and {}", options.beta1,
          options.beta2, options.eps);
}

void AdamW::update(const Slot& slot, const ParameterGroup& group) {
  const Tensor& parameter = slot.values();
  const double t = *slot.state[2].tensor.data<std::int32_t>();
  const double correction1 = 1 - std::pow(options_.beta1, t),
               correction2 = 1 - std::pow(options_.beta2, t);
  if (parameter.device() != Device::cpu) {
    const AdamWStep step{.beta1 = static_cast<float>(options_.beta1),
                         .beta2 = static_cast<float>(options_.beta2),
                         .eps = static_cast<float>(options_.eps),
                         .keep = static_cast<float>(1 - group.learning_rate * group.weight_decay),
                         .step_size = static_cast<float>(group.learning_rate / correction1),
                         .scale_v = static_cast<float>(1 / std::sqrt(correction2)),
                         .scale = static_cast<float>(gradient_scale())};
    return device_kernels(parameter.device())
        .adamw(step, parameter, slot.parameter.tensor.grad(), slot.state[0].tensor,
               slot.state[1].tensor, slot.kept());
  }
  const Tensor gradient = slot.gradient();
  dispatch(parameter.dtype(), "AdamW", [&](auto zero) {
    using T = decltype(zero);
    T *const p = parameter.data<T>(), *const m = slot.state[0].tensor.data<T>(),
             *const v = slot.state[1].tensor.data<T>();
    const T* const g = gradient.data<T>();
    const T beta1 = static_cast<T>(options_.beta1), beta2 = static_cast<T>(options_.beta2),
            eps = static_cast<T>(options_.eps);
    const T keep = static_cast<T>(1 - group.learning_rate * group.weight_decay),
            scale = static_cast<T>(gradient_scale());
    const T step_size = static_cast<T>(group.learning_rate / correction1),
            scale_v = static_cast<T>(1 / std::sqrt(correction2));
    parallel_for(parameter.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T gi = scale * g[i];
        m[i] = beta1 * m[i] + (1 - beta1) * gi;
        v[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
        p[i] = keep * p[i] - step_size * m[i] / (std::sqrt(v[i]) * scale_v + eps);
      }
    });
  });
}

// --- Clipping
// -----------------------------------------------------------------------------------------------------------------------

namespace {

std::vector<Tensor> gradients_on(Device device, std::span<const Tensor> parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : parameters)
    if (parameter.device() == device && parameter.grad().defined())
      gradients.push_back(parameter.grad());
  return gradients;
}

// One number comes home, whatever the number of gradients: the host waits once.
double grad_norm_squared_on(Device device, std::span<const Tensor> parameters) {
  const std::vector<Tensor> gradients = gradients_on(device, parameters);
  if (gradients.empty()) return 0;
  const Tensor total = Tensor::empty({}, DType::fp32, device);
  device_kernels(device).sum_of_squares(gradients, 1, total);
  return total.item();
}

}  // namespace

double grad_norm_squared(std::span<const Tensor> parameters) {
  double total = grad_norm_squared_on(Device::cuda, parameters) +
                 grad_norm_squared_on(Device::emulated, parameters);
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined() || parameter.device() != Device::cpu) continue;
    const Tensor gradient = wide(parameter.grad());
    dispatch(gradient.dtype(), "grad_norm_squared", [&](auto zero) {
      using T = decltype(zero);
      const T* const g = gradient.data<T>();
      std::vector<double> of_piece(static_cast<std::size_t>(pieces_of(gradient.elements(), grain)),
                                   0.0);
      parallel_for_pieces(gradient.elements(), grain,
                          [&](int piece, std::int64_t begin, std::int64_t end) {
                            double squares = 0;
#pragma omp simd reduction(+ : squares)
                            for (std::int64_t i = begin; i < end; ++i)
                              squares += static_cast<double>(g[i]) * static_cast<double>(g[i]);
                            of_piece[static_cast<std::size_t>(piece)] = squares;
                          });
      for (const double squares : of_piece) total += squares;
    });
  }
  return total;
}

void scale_grads(std::span<const Tensor> parameters, double factor) {
  if (factor == 1) return;
  for (const Device device : {Device::cuda, Device::emulated})
    if (const std::vector<Tensor> gradients = gradients_on(device, parameters); !gradients.empty())
      device_kernels(device).scale_all(gradients, factor);
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    const Tensor& gradient = parameter.grad();
    if (gradient.device() != Device::cpu) continue;  // done above
    dispatch_stored(gradient.dtype(), "scale_grads", [&](auto zero) {
      using T = decltype(zero);
      T* const g = gradient.data<T>();
      const auto f =
          static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(factor);
      parallel_for(gradient.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) g[i] = g[i] * f;
      });
    });
  }
}

double clip_factor(double norm, double max_norm) {
  require(max_norm > 0, "clip_grad_norm: expected a maximal norm above 0, got {}", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;  // a NaN passes through, to be seen
}

double clip_grad_norm(std::span<const Tensor> parameters, double max_norm) {
  const double norm = std::sqrt(grad_norm_squared(parameters));
  scale_grads(parameters, clip_factor(norm, max_norm));
  return norm;
}

}  // namespace ringside::autograd

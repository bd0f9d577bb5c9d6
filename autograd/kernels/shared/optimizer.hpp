// SGD and AdamW on a GPU, for many parameters in one launch. optim/sgd.cpp and optim/adamw.cpp have
// the formulas.
//
// A bf16 parameter has an fp32 master copy. The step updates the master; the parameter is the
// master rounded to bf16. All arithmetic is fp32.
//
// Bytes per element: AdamW reads gradient, value and two moments and writes all but the gradient:
// 28 in fp32. With bf16 parameters and gradients it reads 2 + 12 and writes 12 + 2: also 28. SGD
// takes 20 with momentum and 12 without. About 40 registers, no shared memory.
#pragma once

#include "autograd/kernels/block/block.hpp"
#include "autograd/kernels/block/tensor_table.hpp"

namespace ringside::autograd::cuda {

//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   p = keep p - step_size m / (sqrt(v) scale_v + eps)
struct AdamWRule {
  static constexpr int states = 2;  // m, v
  float beta1, beta2, eps, gradient_scale;

  struct Factors {
    float keep;       // 1 - learning rate * weight decay
    float step_size;  // learning rate / (1 - beta1^t)
    float scale_v;    // 1 / sqrt(1 - beta2^t)
  };

  template <Block B>
  constexpr void update(const Factors& factors, float gradient, float& p,
                        float (&state)[states]) const {
    const float g = gradient_scale * gradient;
    state[0] = beta1 * state[0] + (1 - beta1) * g;
    state[1] = beta2 * state[1] + (1 - beta2) * g * g;
    p = factors.keep * p -
        factors.step_size * state[0] / (B::sqrt(state[1]) * factors.scale_v + eps);
  }
};

//   g += decay p
//   p -= learning_rate g
struct SgdRule {
  static constexpr int states = 0;
  float gradient_scale;

  struct Factors {
    float learning_rate, decay;
  };

  template <Block B>
  constexpr void update(const Factors& factors, float gradient, float& p, float (&)[1]) const {
    p -= factors.learning_rate * (gradient_scale * gradient + factors.decay * p);
  }
};

//   g += decay p
//   m = momentum m + g
//   p -= learning_rate m, or with Nesterov momentum p -= learning_rate (g + momentum m)
struct MomentumRule {
  static constexpr int states = 1;  // m
  float momentum, gradient_scale;
  bool nesterov;

  using Factors = SgdRule::Factors;

  template <Block B>
  constexpr void update(const Factors& factors, float gradient, float& p,
                        float (&state)[states]) const {
    const float g = gradient_scale * gradient + factors.decay * p;
    state[0] = momentum * state[0] + g;
    p -= factors.learning_rate * (nesterov ? g + momentum * state[0] : state[0]);
  }
};

// One step of many parameters. S is the type of the parameters, float or Bf16, and G that of the
// gradients.
template <class Rule, class S, class G>
struct OptimizerUpdate {
  static constexpr int threads = 256, states = Rule::states, room = states == 0 ? 1 : states;

  struct Parameter : TableEntry {
    float* values;  // the master if there is one, otherwise the parameter
    S* stored;      // the parameter if there is a master, otherwise nullptr
    const G* gradient;
    float* state[room];  // Rule::states of them
    typename Rule::Factors factors;

    constexpr bool all_fit_packs() const {
      bool fits = fits_packs(0, values, gradient) && (!stored || fits_packs(0, stored));
      for (int i = 0; i < states; ++i) fits = fits && fits_packs(0, state[i]);
      return fits;
    }
  };
  TensorTable<Parameter, 48> table;
  Rule rule;

  constexpr std::int64_t blocks() const { return table.blocks; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const auto [parameter, begin, end] = table.work_of(block.index());
    for_each_in_range<Narrower<S, G>>(
        block, begin, end, parameter.packs,
        [&, &parameter = parameter](std::int64_t i, auto width) {
          constexpr int n = width.value;
          const auto gradient = load_floats<n>(parameter.gradient + i);
          auto values = load_floats<n>(parameter.values + i);
          Floats<n> state[room]{};
          for (int s = 0; s < states; ++s) state[s] = load_floats<n>(parameter.state[s] + i);
          for (int k = 0; k < n; ++k) {
            float element[room]{};
            for (int s = 0; s < states; ++s) element[s] = state[s].at[k];
            rule.template update<B>(parameter.factors, gradient.at[k], values.at[k], element);
            for (int s = 0; s < states; ++s) state[s].at[k] = element[s];
          }
          for (int s = 0; s < states; ++s) store_floats<n>(parameter.state[s] + i, state[s]);
          store_floats<n>(parameter.values + i, values);
          if (parameter.stored) store_floats<n>(parameter.stored + i, values);
        });
  }
};

}  // namespace ringside::autograd::cuda

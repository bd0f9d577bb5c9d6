// SGD and AdamW on a GPU, for many parameters in one launch. The formulas are those of
// optimizer.cpp.
//
// A parameter of bf16 has a master in fp32, to which the step is made; the parameter is the master,
// rounded. All arithmetic is fp32.
//
// Bytes per number: AdamW reads gradient, values and two moments and writes all but the gradient,
// 28 in fp32; with bf16 parameters and gradients, 2 + 12 read and 12 + 2 written, 28 too. SGD with
// momentum 20, without 12. Some 40 registers, no shared memory.
#pragma once

#include "autograd/kernels/block/block.hpp"
#include "autograd/kernels/block/slices.hpp"

namespace ringside::autograd::cuda {

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  p = keep p - step_size m / (sqrt(v)
// scale_v + eps)
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

// g += decay p;  p -= learning_rate g
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

// g += decay p;  m = momentum m + g;  p -= learning_rate m, or with Nesterov's momentum
// learning_rate (g + momentum m)
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

// S: of parameters, float or Bf16; G: of gradients.
template <class Rule, class S, class G>
struct OptimizerUpdate {
  static constexpr int threads = 256, states = Rule::states, room = states == 0 ? 1 : states;

  struct Parameter : SlicePlace {
    float* values;  // what the step is made to: the parameter, or its master
    S* rounded;     // of a parameter with a master: the parameter; else nullptr
    const G* gradient;
    float* state[room];  // as the rule counts them
    typename Rule::Factors factors;

    constexpr bool on_packs() const {
      bool fits = in_packs(0, values, gradient) && (!rounded || in_packs(0, rounded));
      for (int i = 0; i < states; ++i) fits = fits && in_packs(0, state[i]);
      return fits;
    }
  };
  Slices<Parameter, 48> slices;
  Rule rule;

  constexpr std::int64_t blocks() const { return slices.blocks; }
  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const auto [parameter, begin, end] = slices.share_of(block.index());
    for_each_from<Narrower<S, G>>(
        block, begin, end, parameter.packs, [&](std::int64_t i, auto width) {
          constexpr int n = width.value;
          const auto gradient = widened<n>(parameter.gradient + i);
          auto values = widened<n>(parameter.values + i);
          Lanes<n> state[room]{};
          for (int s = 0; s < states; ++s) state[s] = widened<n>(parameter.state[s] + i);
          for (int k = 0; k < n; ++k) {
            float of_number[room]{};
            for (int s = 0; s < states; ++s) of_number[s] = state[s].at[k];
            rule.template update<B>(parameter.factors, gradient.at[k], values.at[k], of_number);
            for (int s = 0; s < states; ++s) state[s].at[k] = of_number[s];
          }
          for (int s = 0; s < states; ++s) narrow_into<n>(parameter.state[s] + i, state[s]);
          narrow_into<n>(parameter.values + i, values);
          if (parameter.rounded) narrow_into<n>(parameter.rounded + i, values);
        });
  }
};

// Numbers of many tensors, times factor.
template <class S>
struct ScaleMany {
  static constexpr int threads = 256;
  struct Part : SlicePlace {
    S* numbers;
    constexpr bool on_packs() const { return in_packs(0, numbers); }
  };
  Slices<Part, 96> slices;
  float factor;

  constexpr std::int64_t blocks() const { return slices.blocks; }
  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const auto [part, begin, end] = slices.share_of(block.index());
    for_each_from<S>(block, begin, end, part.packs, [&](std::int64_t i, auto width) {
      auto x = widened<width.value>(part.numbers + i);
      for (int k = 0; k < width.value; ++k) x.at[k] *= factor;
      narrow_into<width.value>(part.numbers + i, x);
    });
  }
};

}  // namespace ringside::autograd::cuda

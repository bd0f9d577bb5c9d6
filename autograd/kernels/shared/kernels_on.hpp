// KernelsOn: DeviceKernels on any device that has a Launcher (elementwise_on.hpp). This file has
// the operations of the Llama block, the loss and the optimizers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "autograd/kernels/shared/attention.hpp"
#include "autograd/kernels/shared/attention_backward.hpp"
#include "autograd/kernels/shared/cross_entropy.hpp"
#include "autograd/kernels/shared/elementwise_on.hpp"
#include "autograd/kernels/shared/embedding.hpp"
#include "autograd/kernels/shared/optimizer.hpp"
#include "autograd/kernels/shared/rms_norm.hpp"
#include "autograd/kernels/shared/rope.hpp"

namespace ringside::autograd::cuda {

template <class Launcher>
class KernelsOn final : public ElementwiseOn<Launcher> {
 public:
  // ---- The Llama block ----

  void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                const Tensor& r) const override {
    norm("rms_norm", x, Tensor(), weight, eps, Tensor(), y, r);
  }
  void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps,
                    const Tensor& total, const Tensor& y, const Tensor& r) const override {
    norm("add_rms_norm", x, residual, weight, eps, total, y, r);
  }

  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& r,
                         const Tensor& dx, const Tensor& dweight) const override {
    const std::int64_t n = weight.elements(), rows = r.elements();
    // Fewer blocks than can run at once: each writes a row of partial sums.
    const std::int64_t most = this->launcher_.max_blocks(RmsNormBackward<float>::threads) / 4,
                       blocks = std::clamp<std::int64_t>(rows, 1, std::max<std::int64_t>(1, most));
    const Tensor partials = Tensor::empty({blocks, n}, DType::fp32, Launcher::device);
    dispatch_storage(x, "rms_norm", [&](auto zero) {
      using S = decltype(zero);
      const RmsNormBackward<S> kernel{
          .dy = at<S>(dy),
          .x = at<S>(x),
          .w = at<S>(weight),
          .r = at<float>(r),
          .dx = at<S>(dx),
          .partials = at<float>(partials),
          .rows = rows,
          .n = n,
          .packs = fits_packs(n, at<S>(dy), at<S>(x), at<S>(weight), at<S>(dx))};
      this->launcher_.run("rms_norm backward", kernel, blocks);
      this->run("rms_norm backward", ColumnSums<S>{at<float>(partials), at<S>(dweight), blocks, n},
                n, 256);
    });
  }

  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, std::int64_t first_position,
            int direction, const Tensor& y) const override {
    require(x.dim() <= 4, "rope: expected at most four dimensions on {}, got {}",
            name_of(Launcher::device), x.shape());
    dispatch_storage(x, "rope", [&](auto zero) {
      using S = decltype(zero);
      Rope<S> kernel{.x = at<S>(x),
                     .y = at<S>(y),
                     .x_view = {},
                     .y_view = {},
                     .cos = at<float>(cos),
                     .sin = at<float>(sin),
                     .shape = {1, 1, 1},
                     .half = x.size(-1) / 2,
                     .first_position = first_position,
                     .direction = static_cast<float>(direction),
                     .packs = false};
      kernel.packs = fits_packs(kernel.half, kernel.x, kernel.y) &&
                     fits_packs(kernel.half, kernel.cos, kernel.sin);
      for (std::int64_t d = x.dim() - 2, axis = 2; d >= 0; --d, --axis) {
        kernel.shape[axis] = x.size(d);
        kernel.x_view.strides[axis] = x.strides()[static_cast<std::size_t>(d)];
        kernel.y_view.strides[axis] = y.strides()[static_cast<std::size_t>(d)];
        kernel.packs = kernel.packs && kernel.x_view.strides[axis] % Pack<S>::size == 0 &&
                       kernel.y_view.strides[axis] % Pack<S>::size == 0;
      }
      this->run("rope", kernel, x.elements() / 2, kernel.packs ? 256 * Pack<S>::size : 256);
    });
  }

  void embedding(const Tensor& ids, const Tensor& weight, const Tensor& y) const override {
    const std::int64_t n = weight.size(1);
    dispatch_storage(weight, "embedding", [&](auto zero) {
      using S = decltype(zero);
      this->run("embedding",
                Embedding<S>{at<std::int32_t>(ids), at<S>(weight), at<S>(y), ids.elements(), n,
                             fits_packs(n, at<S>(weight), at<S>(y))},
                ids.elements(), 1);
    });
  }

  // sorted [2, tokens]: the ids in order, and the token that each comes from.
  void embedding_backward(const Tensor& sorted, const Tensor& dy,
                          const Tensor& dweight) const override {
    const std::int64_t n = dweight.size(1), tokens = sorted.size(1);
    dispatch_storage(dy, "embedding", [&](auto zero) {
      using S = decltype(zero);
      const std::int32_t* const ids = at<std::int32_t>(sorted);
      this->run("embedding backward",
                EmbeddingBackward<S>{ids, ids + tokens, at<S>(dy), at<S>(dweight), tokens, n,
                                     fits_packs(n, at<S>(dy), at<S>(dweight))},
                tokens, 1);
    });
  }

  void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
            const Tensor& c) const override {
    require(c.dtype() == a.dtype() || c.dtype() == DType::fp32,
            "matmul: a product of {} cannot be {}", name_of(a.dtype()), name_of(c.dtype()));
    if (product.m > 0 && product.n > 0 && product.count > 0) this->launcher_.gemm(product, a, b, c);
  }

  // ---- Attention ----

  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                 const Tensor& log_sums) const override {
    const AttentionSizes sizes = attention_sizes(q, k);
    dispatch_storage(q, "causal_attention", [&](auto zero) {
      using S = decltype(zero);
      with_padded_head_size(sizes.head_size, [&](auto d) {
        this->run("causal_attention",
                  AttentionForward<S, d.value>{sizes, attention_scale(q), heads_of<const S>(q),
                                               heads_of<const S>(k), heads_of<const S>(v),
                                               heads_of<S>(y), at<float>(log_sums)});
      });
    });
  }

  void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                          const Tensor& log_sums, const Tensor& dy, const Tensor& dq,
                          const Tensor& dk, const Tensor& dv) const override {
    const AttentionSizes sizes = attention_sizes(q, k);
    const Tensor delta = Tensor::empty(log_sums.shape(), DType::fp32, Launcher::device);
    dispatch_storage(q, "causal_attention", [&](auto zero) {
      using S = decltype(zero);
      this->run(
          "causal_attention backward",
          AttentionDelta<S>{sizes, heads_of<const S>(dy), heads_of<const S>(y), at<float>(delta)});
      const AttentionBackwardInputs<S> inputs{sizes,
                                              attention_scale(q),
                                              heads_of<const S>(q),
                                              heads_of<const S>(k),
                                              heads_of<const S>(v),
                                              heads_of<const S>(dy),
                                              at<float>(log_sums),
                                              at<float>(delta)};
      with_padded_head_size(sizes.head_size, [&](auto d) {
        this->run("causal_attention backward",
                  AttentionKeysBackward<S, d.value>{inputs, heads_of<S>(dk), heads_of<S>(dv)});
        this->run("causal_attention backward",
                  AttentionQueriesBackward<S, d.value>{inputs, heads_of<S>(dq)});
      });
    });
  }

  // ---- Loss ----

  void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                     const Tensor& losses, const Tensor& log_sums) const override {
    dispatch_storage(z, "cross_entropy", [&](auto zero) {
      using S = decltype(zero);
      cross_entropy_as<S, S>(z, targets, ignore_index, losses, at<float>(log_sums), nullptr, 0);
    });
  }

  void cross_entropy_backward(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                              const Tensor& log_sums, double weight, const Tensor& dloss,
                              const Tensor& dz) const override {
    dispatch_storage(z, "cross_entropy", [&](auto zero) {
      using S = decltype(zero);
      this->run("cross_entropy backward",
                CrossEntropyBackward<S, S>{.logits = at<S>(z),
                                           .targets = targets_of(z, targets, ignore_index),
                                           .log_sums = at<float>(log_sums),
                                           .dloss = at<float>(dloss),
                                           .gradient = at<S>(dz),
                                           .rows = targets.elements(),
                                           .factor = static_cast<float>(weight),
                                           .packs = fits_packs(z.size(-1), at<S>(z), at<S>(dz))});
    });
  }

  void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                   std::int32_t ignore_index, double weight, const Tensor& losses,
                                   const Tensor& dz) const override {
    dispatch_storage(dz, "linear_cross_entropy", [&](auto zero) {
      using G = decltype(zero);
      cross_entropy_as<float, G>(z, targets, ignore_index, losses, nullptr, at<G>(dz), weight);
    });
  }

  // ---- Optimizers ----

  void adamw(const AdamWStep& step, const Tensor& p, const Tensor& g, const Tensor& m,
             const Tensor& v, const Tensor& kept) const override {
    const AdamWRule rule{step.beta1, step.beta2, step.eps, step.scale};
    update("AdamW", rule, {step.keep, step.step_size, step.scale_v}, p, g, std::array{m, v}, kept);
  }

  void sgd(const SgdStep& step, const Tensor& p, const Tensor& g, const Tensor& m,
           const Tensor& kept) const override {
    if (m.defined())
      update("SGD", MomentumRule{step.momentum, step.scale, step.nesterov},
             {step.learning_rate, step.decay}, p, g, std::array{m}, kept);
    else
      update("SGD", SgdRule{step.scale}, {step.learning_rate, step.decay}, p, g,
             std::array<Tensor, 0>{}, kept);
  }

 private:
  static AttentionSizes attention_sizes(const Tensor& q, const Tensor& k) {
    require(q.size(3) <= max_head_size, "causal_attention: heads on {} are at most {} wide, got {}",
            name_of(Launcher::device), max_head_size, q.shape());
    return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), static_cast<int>(q.size(3))};
  }
  static float attention_scale(const Tensor& q) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(q.size(3))));
  }
  template <class S>
  static Heads<S> heads_of(const Tensor& x) {
    return {at<S>(x), x.strides()[0], x.strides()[1], x.strides()[2]};
  }

  static Targets targets_of(const Tensor& z, const Tensor& targets, std::int32_t ignore_index) {
    return {at<std::int32_t>(targets), z.size(-1), ignore_index};
  }

  // Computes losses; also log_sums and gradient, if they are not nullptr.
  template <class S, class G>
  void cross_entropy_as(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                        const Tensor& losses, float* log_sums, G* gradient, double weight) const {
    const std::int64_t vocabulary = z.size(-1);
    this->run("cross_entropy",
              CrossEntropy<S, G>{.logits = at<S>(z),
                                 .targets = targets_of(z, targets, ignore_index),
                                 .losses = at<float>(losses),
                                 .log_sums = log_sums,
                                 .gradient = gradient,
                                 .rows = targets.elements(),
                                 .weight = static_cast<float>(weight),
                                 .packs = fits_packs(vocabulary, at<S>(z)) &&
                                          (!gradient || fits_packs(vocabulary, gradient))});
  }

  template <class Rule, std::size_t states>
  void update(const char* name, const Rule& rule, const typename Rule::Factors& factors,
              const Tensor& p, const Tensor& g, const std::array<Tensor, states>& state,
              const Tensor& kept) const {
    const auto launch = [&](auto of_parameter, auto of_gradient) {
      using S = decltype(of_parameter);
      using G = decltype(of_gradient);
      OptimizerUpdate<Rule, S, G> kernel{.table = {}, .rule = rule};
      typename OptimizerUpdate<Rule, S, G>::Parameter parameter{};
      parameter.elements = p.elements();
      parameter.values = at<float>(p);
      parameter.rounded = kept.defined() ? at<S>(kept) : nullptr;
      parameter.gradient = at<G>(g);
      float** into = parameter.state;
      for (const Tensor& each : state) *into++ = at<float>(each);
      parameter.factors = factors;
      kernel.table.add(parameter);
      this->run(name, kernel);
    };
    if (!kept.defined())
      launch(float{}, float{});
    else if (g.dtype() == DType::bf16)
      launch(Bf16{}, Bf16{});
    else
      launch(Bf16{}, float{});
  }

  void norm(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight,
            double eps, const Tensor& total, const Tensor& y, const Tensor& r) const {
    const std::int64_t n = weight.elements(), rows = r.elements();
    dispatch_storage(x, op, [&](auto zero) {
      using S = decltype(zero);
      const S* const other = residual.defined() ? at<S>(residual) : at<S>(x);
      S* const sum_into = total.defined() ? at<S>(total) : at<S>(y);
      const RmsNorm<S> kernel{
          .x = at<S>(x),
          .residual = residual.defined() ? other : nullptr,
          .w = at<S>(weight),
          .sum = sum_into,
          .y = at<S>(y),
          .r = at<float>(r),
          .rows = rows,
          .n = n,
          .eps = static_cast<float>(eps),
          .packs = fits_packs(n, at<S>(x), other, at<S>(weight), sum_into, at<S>(y))};
      this->run(op, kernel, rows, 1);
    });
  }
};

}  // namespace ringside::autograd::cuda

// KernelsOn: DeviceKernels on any device that has a Launcher (elementwise_on.hpp). This file has
// the operations of the Llama block, the loss and the optimizers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

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
  DType sum_dtype() const override { return DType::fp32; }
  bool multiplies_bf16() const override { return true; }
  bool attention_backward_reads_y() const override { return true; }

  // ---- The Llama block ----

  void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
                const Tensor& r) const override {
    add_rms_norm(x, {}, weight, eps, {}, y, r);
  }
  // Without a residual this is rms_norm.
  void add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps,
                    const Tensor& total, const Tensor& y, const Tensor& r) const override {
    const char* const op = residual.defined() ? "add_rms_norm" : "rms_norm";
    dispatch_storage(x, op, [&]<class S>(S) {
      if (weight.elements() * std::int64_t{sizeof(S)} <=
          2048)  // up to four packs for each thread of a warp
        norm<RmsNorm<S, 32>>(op, x, residual, weight, eps, total, y, r);
      else
        norm<RmsNorm<S, 256>>(op, x, residual, weight, eps, total, y, r);
    });
  }

  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& r,
                         const Tensor& dx, const Tensor& dweight) const override {
    dispatch_storage(x, "rms_norm", [&]<class S>(S) {
      const std::int64_t n = weight.elements();
      if (n <= RmsNormBackward<S, 32>::columns_of(n % Pack<S>::size == 0))
        norm_backward<RmsNormBackward<S, 32>>(dy, x, weight, r, dx, dweight);
      else
        norm_backward<RmsNormBackward<S, 256>>(dy, x, weight, r, dx, dweight);
    });
  }

  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, std::int64_t first_position,
            int direction, const Tensor& y) const override {
    require(x.dim() <= 4, "rope: expected at most four dimensions on {}, got {}",
            name_of(Launcher::device), x.shape());
    dispatch_storage(x, "rope", [&]<class S>(S) {
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
    dispatch_storage(weight, "embedding", [&]<class S>(S) {
      this->run("embedding",
                Embedding<S>{at<std::int32_t>(ids), at<S>(weight), at<S>(y), ids.elements(), n,
                             fits_packs(n, at<S>(weight), at<S>(y))},
                ids.elements(), 1);
    });
  }

  // [2, tokens]: the ids in ascending order, and the token of each; without those of id -1. Tokens
  // with equal ids keep their order, so that backward adds them without atomics.
  Tensor embedding_index(const Tensor& ids) const override {
    const auto all = ids.values<std::int32_t>();
    // A counting sort, a tenth of the time of one that compares. place[id]: where its next token
    // goes.
    const std::int32_t largest = all.empty() ? -1 : *std::max_element(all.begin(), all.end());
    std::vector<std::int64_t> place(static_cast<std::size_t>(largest) + 2);
    for (const std::int32_t id : all)
      if (id >= 0) ++place[static_cast<std::size_t>(id) + 1];
    std::partial_sum(place.begin(), place.end(), place.begin());
    const std::int64_t count = place.back();
    const Tensor sorted = Tensor::empty({2, count}, DType::int32);
    std::int32_t* const first = sorted.data<std::int32_t>();
    for (std::size_t t = 0; t < all.size(); ++t) {
      if (all[t] < 0) continue;
      const std::int64_t to = place[static_cast<std::size_t>(all[t])]++;
      first[to] = all[t], first[count + to] = static_cast<std::int32_t>(t);
    }
    return sorted.to(Launcher::device);
  }

  void embedding_backward(const Tensor& sorted, const Tensor& dy,
                          const Tensor& dweight) const override {
    const std::int64_t n = dweight.size(1), tokens = sorted.size(1);
    const SortedTokens ids{at<std::int32_t>(sorted), at<std::int32_t>(sorted) + tokens, tokens};
    const Tensor partials = Tensor::empty({2 * ids.stretches(), n}, DType::fp32, Launcher::device);
    dispatch_storage(dy, "embedding", [&]<class S>(S) {
      const bool packs = fits_packs(n, at<S>(dy), at<S>(dweight));
      this->run("embedding backward",
                EmbeddingBackward<S>{ids, at<S>(dy), at<S>(dweight), at<float>(partials), n, packs},
                tokens, 1);
      this->run("embedding backward",
                EmbeddingPartialSums<S>{ids, at<float>(partials), at<S>(dweight), n, packs},
                ids.stretches(), 1);
    });
  }

  void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
            const Tensor& c) const override {
    require(c.dtype() == a.dtype() || c.dtype() == DType::fp32,
            "matmul: a product of {} cannot be {}", name_of(a.dtype()), name_of(c.dtype()));
    if (product.m > 0 && product.n > 0) this->launcher_.gemm(product, a, b, c);
  }

  // ---- Attention ----

  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                 const Tensor& log_sums) const override {
    const AttentionSizes sizes = attention_sizes(q, k);
    dispatch_storage(q, "causal_attention", [&]<class S>(S) {
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
    dispatch_storage(q, "causal_attention", [&]<class S>(S) {
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
    dispatch_storage(z, "cross_entropy", [&]<class S>(S) {
      cross_entropy_as<S, S>(z, targets, ignore_index, losses,
                             log_sums.defined() ? at<float>(log_sums) : nullptr, nullptr, 0);
    });
  }

  void cross_entropy_backward(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                              const Tensor& log_sums, std::int64_t count, const Tensor& dloss,
                              const Tensor& dz) const override {
    cross_entropy_gradient(z, targets, ignore_index, log_sums, 1 / static_cast<double>(count),
                           dloss, dz);
  }

  void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                   std::int32_t ignore_index, double weight, const Tensor& losses,
                                   const Tensor& dz) const override {
    dispatch_storage(dz, "linear_cross_entropy", [&]<class G>(G) {
      cross_entropy_as<float, G>(z, targets, ignore_index, losses, nullptr, at<G>(dz), weight);
    });
  }

  // The kernel gives log_sum = log sum exp(z) and loss = log_sum - z[target] of this rank's
  // columns. That says the same: with largest = log_sum, total is 1. Leaves z as it is.
  RowNumbers numbers_of_rows(const Tensor& z, const Tensor& targets) const override {
    const std::int64_t rows = z.size(0), columns = z.size(1);
    const Tensor losses = Tensor::empty({rows}, DType::fp32, Launcher::device),
                 log_sums = Tensor::empty({rows}, DType::fp32, Launcher::device);
    cross_entropy(z, targets, ignored_here, losses, log_sums);
    const Tensor loss = losses.to(Device::cpu), target = targets.to(Device::cpu);
    const RowNumbers numbers{log_sums.to(Device::cpu), Tensor::full({2, rows}, 1)};
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int32_t column = target.data<std::int32_t>()[t];
      const bool is_here = column >= 0 && column < columns;
      numbers.sums.data<float>()[rows + t] =
          is_here ? numbers.largest.data<float>()[t] - loss.data<float>()[t] : 0;
    }
    return numbers;
  }

  // The kernel computes exp(z - log_sum) with the log_sum of the whole rows. To it, a target of
  // another rank is no column of this row.
  void gradient_of_rows(const Tensor& z, const Tensor& targets, const Tensor& /*own_largest*/,
                        const RowNumbers& whole, double weight) const override {
    const std::int64_t rows = z.size(0);
    const Tensor log_sums = Tensor::empty({rows});
    for (std::int64_t t = 0; t < rows; ++t)
      log_sums.data<float>()[t] =
          whole.largest.data<float>()[t] + std::log(whole.sums.data<float>()[t]);
    cross_entropy_gradient(z, targets, ignored_here, log_sums.to(Launcher::device), weight, {}, z);
  }

  // ---- Optimizers ----

  void adamw(const AdamWStep& step, std::span<const AdamWUpdate> updates) const override {
    const AdamWRule rule{static_cast<float>(step.beta1), static_cast<float>(step.beta2),
                         static_cast<float>(step.eps), static_cast<float>(step.scale)};
    update_all("AdamW", rule, updates, [](auto& entry, const AdamWUpdate& update) {
      entry.state[0] = at<float>(update.m), entry.state[1] = at<float>(update.v);
      entry.factors = {static_cast<float>(update.keep), static_cast<float>(update.step_size),
                       static_cast<float>(update.scale_v)};
    });
  }

  void sgd(const SgdStep& step, std::span<const SgdUpdate> updates) const override {
    const auto fill = [](auto& entry, const SgdUpdate& update) {
      if (update.m.defined()) entry.state[0] = at<float>(update.m);
      entry.factors = {static_cast<float>(update.learning_rate), static_cast<float>(update.decay)};
    };
    const auto scale = static_cast<float>(step.scale);
    if (step.momentum != 0)
      update_all("SGD", MomentumRule{static_cast<float>(step.momentum), scale, step.nesterov},
                 updates, fill);
    else
      update_all("SGD", SgdRule{scale}, updates, fill);
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

  // dz = (softmax(z) - [v == target]) weight dloss; an undefined dloss stands for 1. A row whose
  // target is not in 0..V-1 has the gradient softmax(z) weight dloss.
  void cross_entropy_gradient(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                              const Tensor& log_sums, double weight, const Tensor& dloss,
                              const Tensor& dz) const {
    dispatch_storage(z, "cross_entropy", [&]<class S>(S) {
      this->run("cross_entropy backward",
                CrossEntropyBackward<S, S>{.logits = at<S>(z),
                                           .targets = targets_of(z, targets, ignore_index),
                                           .log_sums = at<float>(log_sums),
                                           .dloss = dloss.defined() ? at<float>(dloss) : nullptr,
                                           .gradient = at<S>(dz),
                                           .rows = targets.elements(),
                                           .factor = static_cast<float>(weight),
                                           .packs = fits_packs(z.size(-1), at<S>(z), at<S>(dz))});
    });
  }

  // Computes losses; also log_sums and gradient, if they are not nullptr.
  template <class S, class G>
  void cross_entropy_as(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                        const Tensor& losses, float* log_sums, G* gradient, double weight) const {
    const std::int64_t vocabulary = z.size(-1);
    CrossEntropy<S, G> kernel{.logits = at<S>(z),
                              .targets = targets_of(z, targets, ignore_index),
                              .losses = at<float>(losses),
                              .log_sums = log_sums,
                              .gradient = gradient,
                              .rows = targets.elements(),
                              .weight = static_cast<float>(weight),
                              .packs = fits_packs(vocabulary, at<S>(z)) &&
                                       (!gradient || fits_packs(vocabulary, gradient)),
                              .row_in_shared = false};
    kernel.row_in_shared = gradient && kernel.row_bytes() <= this->launcher_.max_shared_bytes();
    this->run("cross_entropy", kernel);
  }

  // Launches for the parameters of each combination of types. fill(entry, update) writes the states
  // and factors of an entry.
  template <class Rule, class Update, class Fill>
  void update_all(const char* name, const Rule& rule, std::span<const Update> updates,
                  const Fill& fill) const {
    for (const Update& update : updates)
      require(update.parameter.defined() || update.g.dtype() == DType::fp32,
              "{}: the gradient of an fp32 parameter must be fp32, got {}", name,
              name_of(update.g.dtype()));
    update_those_of<float, float>(name, rule, updates, fill);
    update_those_of<Bf16, Bf16>(name, rule, updates, fill);
    update_those_of<Bf16, float>(name, rule, updates, fill);
  }

  // Updates the parameters of type S that have gradients of type G. Starts another table whenever
  // one is full.
  template <class S, class G, class Rule, class Update, class Fill>
  void update_those_of(const char* name, const Rule& rule, std::span<const Update> updates,
                       const Fill& fill) const {
    using Kernel = OptimizerUpdate<Rule, S, G>;
    Kernel kernel{.table = {}, .rule = rule};
    for (const Update& update : updates) {
      const bool has_master = update.parameter.defined();
      if (has_master != std::is_same_v<S, Bf16> || update.g.dtype() != dtype_of<G>()) continue;
      typename Kernel::Parameter entry{};
      entry.elements = update.p.elements();
      entry.values = at<float>(update.p);
      entry.stored = has_master ? at<S>(update.parameter) : nullptr;
      entry.gradient = at<G>(update.g);
      fill(entry, update);
      kernel.table.add(entry);
      if (!kernel.table.full()) continue;
      this->run(name, kernel);
      kernel.table = {};
    }
    this->run(name, kernel);
  }

  template <class Kernel>
  void norm(const char* op, const Tensor& x, const Tensor& residual, const Tensor& weight,
            double eps, const Tensor& total, const Tensor& y, const Tensor& r) const {
    using S = typename Kernel::Element;
    const S* const other = residual.defined() ? at<S>(residual) : at<S>(x);
    S* const sum_into = total.defined() ? at<S>(total) : at<S>(y);
    const std::int64_t n = weight.elements();
    const Kernel kernel{.x = at<S>(x),
                        .residual = residual.defined() ? other : nullptr,
                        .w = at<S>(weight),
                        .sum = sum_into,
                        .y = at<S>(y),
                        .r = at<float>(r),
                        .rows = r.elements(),
                        .n = n,
                        .eps = static_cast<float>(eps),
                        .packs = fits_packs(n, at<S>(x), other, at<S>(weight), sum_into, at<S>(y))};
    // A block for each row or eight, and not as many as run at once: that was 70 % as fast.
    const std::int64_t rows_of_block = Kernel::threads / Kernel::group_size;
    this->launcher_.run(op, kernel, (kernel.rows + rows_of_block - 1) / rows_of_block);
  }

  // One launch for each kernel.columns() columns.
  template <class Kernel>
  void norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& r,
                     const Tensor& dx, const Tensor& dweight) const {
    using S = typename Kernel::Element;
    const std::int64_t n = weight.elements(), rows = r.elements(),
                       rows_at_once = Kernel::threads / Kernel::group_size;
    // As many blocks as run at once, because each writes a line of partial sums: a multiprocessor
    // has registers for some of the eight that its threads would allow.
    const std::int64_t most =
                           std::max<std::int64_t>(1, this->launcher_.max_blocks(Kernel::threads) /
                                                         8 * Kernel::blocks_at_once),
                       blocks = std::clamp<std::int64_t>((rows + rows_at_once - 1) / rows_at_once,
                                                         1, most);
    Kernel kernel{.dy = at<S>(dy),
                  .x = at<S>(x),
                  .w = at<S>(weight),
                  .r = at<float>(r),
                  .dx = at<S>(dx),
                  .partials = nullptr,
                  .rows = rows,
                  .n = n,
                  .first = 0,
                  .packs = fits_packs(n, at<S>(dy), at<S>(x), at<S>(weight), at<S>(dx))};
    const Tensor partials = Tensor::empty({blocks, kernel.width()}, DType::fp32, Launcher::device);
    kernel.partials = at<float>(partials);
    for (; kernel.first < n; kernel.first += kernel.columns()) {
      this->launcher_.run("rms_norm backward", kernel, blocks);
      this->run(
          "rms_norm backward",
          ColumnSums<S>{kernel.partials, at<S>(dweight) + kernel.first, blocks, kernel.width()},
          kernel.width(), ColumnSums<S>::across);
    }
  }
};

}  // namespace ringside::autograd::cuda

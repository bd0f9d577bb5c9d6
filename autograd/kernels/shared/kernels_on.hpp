// KernelsOn: DeviceKernels by the kernels of kernels/, launched by whatever Launcher it is made
// for:
//
//     static constexpr Device device
//     std::int64_t most_blocks(int threads) const                           how many blocks of so many threads can be under way at once
//     void run(const char* op, const Kernel& kernel, std::int64_t blocks)   launches it; `op` is for error messages
//     void gemm(const MatrixProduct&, const Tensor& a, const Tensor& b, const Tensor& c)
//
// What is to be done here is the same for each: choose the type, take addresses, see whether they
// are those of packs, choose how many blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <type_traits>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/shared/attention.hpp"
#include "autograd/kernels/shared/cross_entropy.hpp"
#include "autograd/kernels/shared/elementwise.hpp"
#include "autograd/kernels/shared/embedding.hpp"
#include "autograd/kernels/shared/optimizer.hpp"
#include "autograd/kernels/shared/rms_norm.hpp"
#include "autograd/kernels/shared/rope.hpp"
#include "autograd/kernels/shared/square_sums.hpp"
#include "autograd/kernels/shared/strided.hpp"
#include "autograd/kernels/shared/sum.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/error.hpp"

namespace ringside::autograd::cuda {

template <class S>
S* at(const Tensor& x) {
  return reinterpret_cast<S*>(x.address());
}

// Calls body(S{}) with S = float or Bf16, as x is kept.
template <class Body>
void dispatch_kept(const Tensor& x, const char* op, const Body& body) {
  if (x.dtype() == DType::fp32) return body(float{});
  if (x.dtype() == DType::bf16) return body(Bf16{});
  fail("{}: expected a tensor of fp32 or bf16 on {}, got {}", op, name_of(x.device()),
       name_of(x.dtype()));
}

// The places of `shape` in tensors that are read with `strides`: without dimensions of one, and
// neighbours that lie as one in all of them joined.
template <int tensors>
Places<tensors> places_of(const char* op, const Shape& shape,
                          const std::array<Shape, tensors>& strides) {
  Places<tensors> places;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const int last = places.dims - 1;
    bool joins = last >= 0;
    for (int t = 0; t < tensors && joins; ++t)
      joins = places.strides[t][last] == strides[static_cast<std::size_t>(t)][d] * shape[d];
    require(joins || places.dims < most_dims,
            "{}: a view of shape {} has more than {} dimensions that do not lie in memory as one; "
            "copy it on the CPU",
            op, shape, most_dims);
    const int into = joins ? last : places.dims++;
    places.shape[into] = joins ? places.shape[into] * shape[d] : shape[d];
    for (int t = 0; t < tensors; ++t)
      places.strides[t][into] = strides[static_cast<std::size_t>(t)][d];
  }
  return places;
}

template <class Launcher>
class KernelsOn final : public DeviceKernels {
 public:
  // ---- Moving numbers ----

  void copy(const Tensor& x, const Tensor& y) const override {
    if (x.dtype() == y.dtype())
      return x.dtype() == DType::bf16 ? copy_as<std::uint16_t, std::uint16_t>(x, y)
                                      : copy_as<std::uint32_t, std::uint32_t>(x, y);
    x.dtype() == DType::bf16 ? copy_as<Bf16, float>(x, y) : copy_as<float, Bf16>(x, y);
  }

  void fill(const Tensor& x, double value) const override {
    if (x.dtype() == DType::int32) return fill_as(x, static_cast<std::int32_t>(value));
    dispatch_kept(x, "fill_", [&](auto zero) { fill_as(x, static_cast<decltype(zero)>(value)); });
  }

  void fill_with(const Tensor& x, const Tensor& factor, double constant) const override {
    dispatch_kept(x, "fill_", [&](auto zero) {
      using S = decltype(zero);
      run("fill_",
          Fill<S>{at<S>(x), S(0.0f), at<float>(factor), static_cast<float>(constant), x.elements()},
          x.elements(), 256);
    });
  }

  void accumulate(const Tensor& target, const Tensor& x) const override {
    combine<Add>("accumulate", target, x, target);
  }

  // ---- Element by element ----

  void add(const Tensor& a, const Tensor& b, const Tensor& y) const override {
    combine<Add>("add", a, b, y);
  }
  void subtract(const Tensor& a, const Tensor& b, const Tensor& y) const override {
    combine<Subtract>("subtract", a, b, y);
  }
  void multiply(const Tensor& a, const Tensor& b, const Tensor& y) const override {
    combine<Multiply>("mul", a, b, y);
  }

  void scale(const Tensor& x, double factor, const Tensor& y) const override {
    elementwise("scale", Scale{{}, static_cast<float>(factor)}, {x}, {y});
  }
  void scale_by(const Tensor& x, const Tensor& factor, double constant,
                const Tensor& y) const override {
    elementwise(
        "scale",
        ScaleBy{{}, at<float>(factor), static_cast<float>(constant), x.address() == y.address()},
        {x}, {y});
  }
  void scale_all(std::span<const Tensor> all, double factor) const override {
    const auto launch = [&](auto& kernel) {
      kernel.factor = static_cast<float>(factor);
      all_blocks("scale", kernel);
    };
    in_slices<ScaleMany<float>>(all, launch);
    in_slices<ScaleMany<Bf16>>(all, launch);
  }
  void relu(const Tensor& x, const Tensor& y) const override {
    elementwise("relu", Relu{}, {x}, {y});
  }
  void relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override {
    elementwise("relu", ReluBackward{}, {dy, x}, {dx});
  }
  void silu(const Tensor& x, const Tensor& y) const override {
    elementwise("silu", Silu{}, {x}, {y});
  }
  void silu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override {
    elementwise("silu", SiluBackward{}, {dy, x}, {dx});
  }
  void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) const override {
    elementwise("swiglu", Swiglu{}, {gate, up}, {y});
  }
  void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                       const Tensor& dup) const override {
    elementwise("swiglu", SwigluBackward{}, {dy, gate, up}, {dgate, dup});
  }

  // ---- Sums ----

  void sum(const Tensor& x, double factor, const Tensor& total) const override {
    const std::int64_t n = x.elements(),
                       blocks = std::clamp<std::int64_t>(
                           (n + 4095) / 4096, 1, launcher_.most_blocks(SumParts<float>::threads));
    const Tensor parts = Tensor::empty({blocks}, DType::fp32, Launcher::device);
    launcher_.run(
        "sum", SumParts<float>{at<float>(x), at<float>(parts), n, in_packs<float>(0, at<float>(x))},
        blocks);
    launcher_.run("sum", Total<float, float>{at<float>(parts), blocks, at<float>(total), factor},
                  1);
  }

  void sum_of_squares(std::span<const Tensor> all, double factor,
                      const Tensor& total) const override {
    std::int64_t blocks = 0;
    for (const Tensor& x : all) blocks += (x.elements() + slice_piece - 1) / slice_piece;
    const Tensor parts = Tensor::empty(
        {2 * blocks}, DType::fp32, Launcher::device);  // fp64 in truth, which tensors here are not
    double* into = reinterpret_cast<double*>(parts.address());
    const auto launch = [&](auto& kernel) {
      kernel.parts = into;
      into += kernel.blocks();
      all_blocks("sum_of_squares", kernel);
    };
    in_slices<SquareSums<float>>(all, launch);
    in_slices<SquareSums<Bf16>>(all, launch);
    launcher_.run("sum_of_squares",
                  Total<double, float>{reinterpret_cast<const double*>(parts.address()), blocks,
                                       at<float>(total), factor},
                  1);
  }

  void sum_to(const Tensor& y, const Tensor& x) const override {
    const Shape read = stretched_strides(x.shape(), x.strides(), y.shape());
    Shape kept, summed, x_strides, y_strides,
        summed_strides;  // y's dimensions, shared out to two lists
    for (std::size_t d = 0; d < y.shape().size(); ++d) {
      const bool is_summed = read[d] == 0;
      (is_summed ? summed : kept).push_back(y.shape()[d]);
      (is_summed ? summed_strides : y_strides).push_back(y.strides()[d]);
      if (!is_summed) x_strides.push_back(read[d]);
    }
    dispatch_kept(y, "sum_to", [&](auto zero) {
      using S = decltype(zero);
      run("sum_to",
          SumTo<S>{at<S>(y), at<S>(x), places_of<2>("sum_to", kept, {x_strides, y_strides}),
                   places_of<1>("sum_to", summed, {summed_strides})},
          x.elements(), 256);
    });
  }

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
    const std::int64_t blocks = std::clamp<std::int64_t>(
        rows, 1,
        std::max<std::int64_t>(1, launcher_.most_blocks(RmsNormBackward<float>::threads) /
                                      4));  // each writes a line of parts
    const Tensor parts = Tensor::empty({blocks, n}, DType::fp32, Launcher::device);
    dispatch_kept(x, "rms_norm", [&](auto zero) {
      using S = decltype(zero);
      const RmsNormBackward<S> kernel{
          .dy = at<S>(dy),
          .x = at<S>(x),
          .w = at<S>(weight),
          .r = at<float>(r),
          .dx = at<S>(dx),
          .parts = at<float>(parts),
          .rows = rows,
          .n = n,
          .packs = in_packs(n, at<S>(dy), at<S>(x), at<S>(weight), at<S>(dx))};
      launcher_.run("rms_norm backward", kernel, blocks);
      run("rms_norm backward", SumOfLines<S>{at<float>(parts), at<S>(dweight), blocks, n}, n, 256);
    });
  }

  void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, std::int64_t first_position,
            int direction, const Tensor& y) const override {
    require(x.dim() <= 4, "rope: expected at most four dimensions on {}, got {}",
            name_of(Launcher::device), x.shape());
    dispatch_kept(x, "rope", [&](auto zero) {
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
      kernel.packs = in_packs(kernel.half, kernel.x, kernel.y) &&
                     in_packs(kernel.half, kernel.cos, kernel.sin);
      for (std::int64_t d = x.dim() - 2, place = 2; d >= 0; --d, --place) {
        kernel.shape[place] = x.size(d);
        kernel.x_view.strides[place] = x.strides()[static_cast<std::size_t>(d)];
        kernel.y_view.strides[place] = y.strides()[static_cast<std::size_t>(d)];
        kernel.packs = kernel.packs && kernel.x_view.strides[place] % Pack<S>::size == 0 &&
                       kernel.y_view.strides[place] % Pack<S>::size == 0;
      }
      run("rope", kernel, x.elements() / 2, kernel.packs ? 256 * Pack<S>::size : 256);
    });
  }

  void embedding(const Tensor& ids, const Tensor& weight, const Tensor& y) const override {
    const std::int64_t n = weight.size(1);
    dispatch_kept(weight, "embedding", [&](auto zero) {
      using S = decltype(zero);
      run("embedding",
          Embedding<S>{at<std::int32_t>(ids), at<S>(weight), at<S>(y), ids.elements(), n,
                       in_packs(n, at<S>(weight), at<S>(y))},
          ids.elements(), 1);
    });
  }

  void embedding_backward(const Tensor& sorted, const Tensor& dy,
                          const Tensor& dweight) const override {
    const std::int64_t n = dweight.size(1), tokens = sorted.size(1);
    dispatch_kept(dy, "embedding", [&](auto zero) {
      using S = decltype(zero);
      const std::int32_t* const ids = at<std::int32_t>(sorted);
      run("embedding backward",
          EmbeddingBackward<S>{ids, ids + tokens, at<S>(dy), at<S>(dweight), tokens, n,
                               in_packs(n, at<S>(dy), at<S>(dweight))},
          tokens, 1);
    });
  }

  void gemm(const MatrixProduct& product, const Tensor& a, const Tensor& b,
            const Tensor& c) const override {
    require(c.dtype() == a.dtype() || c.dtype() == DType::fp32,
            "matmul: a product of {} cannot be {}", name_of(a.dtype()), name_of(c.dtype()));
    if (product.m > 0 && product.n > 0 && product.count > 0) launcher_.gemm(product, a, b, c);
  }

  // ---- Attention ----

  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                 const Tensor& log_sums) const override {
    const AttentionSizes sizes = attention_sizes(q, k);
    dispatch_kept(q, "causal_attention", [&](auto zero) {
      using S = decltype(zero);
      with_padded_head_size(sizes.head_size, [&](auto d) {
        all_blocks("causal_attention",
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
    dispatch_kept(q, "causal_attention", [&](auto zero) {
      using S = decltype(zero);
      all_blocks(
          "causal_attention backward",
          AttentionDelta<S>{sizes, heads_of<const S>(dy), heads_of<const S>(y), at<float>(delta)});
      const AttentionGradients<S> given{sizes,
                                        attention_scale(q),
                                        heads_of<const S>(q),
                                        heads_of<const S>(k),
                                        heads_of<const S>(v),
                                        heads_of<const S>(dy),
                                        at<float>(log_sums),
                                        at<float>(delta)};
      with_padded_head_size(sizes.head_size, [&](auto d) {
        all_blocks("causal_attention backward",
                   AttentionKeysBackward<S, d.value>{given, heads_of<S>(dk), heads_of<S>(dv)});
        all_blocks("causal_attention backward",
                   AttentionQueriesBackward<S, d.value>{given, heads_of<S>(dq)});
      });
    });
  }

  // ---- Loss ----

  void cross_entropy(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                     const Tensor& losses, const Tensor& log_sums) const override {
    dispatch_kept(z, "cross_entropy", [&](auto zero) {
      using S = decltype(zero);
      cross_entropy_as<S, S>(z, targets, ignore_index, losses, at<float>(log_sums), nullptr, 0);
    });
  }

  void cross_entropy_backward(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                              const Tensor& log_sums, double weight, const Tensor& dloss,
                              const Tensor& dz) const override {
    dispatch_kept(z, "cross_entropy", [&](auto zero) {
      using S = decltype(zero);
      all_blocks("cross_entropy backward",
                 CrossEntropyBackward<S, S>{.logits = at<S>(z),
                                            .targets = targets_of(z, targets, ignore_index),
                                            .log_sums = at<float>(log_sums),
                                            .dloss = at<float>(dloss),
                                            .gradient = at<S>(dz),
                                            .rows = targets.elements(),
                                            .factor = static_cast<float>(weight),
                                            .packs = in_packs(z.size(-1), at<S>(z), at<S>(dz))});
    });
  }

  void cross_entropy_with_gradient(const Tensor& z, const Tensor& targets,
                                   std::int32_t ignore_index, double weight, const Tensor& losses,
                                   const Tensor& dz) const override {
    dispatch_kept(dz, "linear_cross_entropy", [&](auto zero) {
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
  // Enough blocks for `items`, of which one block takes `each` at a time, and no more than are of
  // use.
  template <class Kernel>
  void run(const char* op, const Kernel& kernel, std::int64_t items, std::int64_t each) const {
    if (items > 0)
      launcher_.run(op, kernel,
                    std::min((items + each - 1) / each, launcher_.most_blocks(Kernel::threads)));
  }

  // A kernel that says itself how many blocks it takes.
  template <class Kernel>
  void all_blocks(const char* op, const Kernel& kernel) const {
    if (kernel.blocks() > 0) launcher_.run(op, kernel, kernel.blocks());
  }

  static AttentionSizes attention_sizes(const Tensor& q, const Tensor& k) {
    require(q.size(3) <= largest_head_size,
            "causal_attention: heads on {} are at most {} wide, got {}", name_of(Launcher::device),
            largest_head_size, q.shape());
    return {q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), static_cast<int>(q.size(3))};
  }
  static float attention_scale(const Tensor& q) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(q.size(3))));
  }
  template <class S>
  static Heads<S> heads_of(const Tensor& x) {
    return {at<S>(x), x.strides()[0], x.strides()[1], x.strides()[2]};
  }

  template <class S>
  void fill_as(const Tensor& x, S value) const {
    run("fill_", Fill<S>{at<S>(x), value, nullptr, 0, x.elements()}, x.elements(), 256);
  }

  template <class From, class To>
  void copy_as(const Tensor& x, const Tensor& y) const {
    run("copy_",
        CopyStrided<From, To>{at<From>(x), at<To>(y),
                              places_of<2>("copy_", x.shape(), {x.strides(), y.strides()})},
        x.elements(), 256);
  }

  template <class Op>
  void elementwise(const char* name, const Op& op, const std::array<Tensor, Op::inputs>& in,
                   const std::array<Tensor, Op::outputs>& out) const {
    dispatch_kept(out[0], name, [&](auto zero) {
      using S = decltype(zero);
      Elementwise<S, Op> kernel{
          .op = op, .in = {}, .out = {}, .n = out[0].elements(), .packs = true};
      for (std::size_t i = 0; i < in.size(); ++i)
        kernel.in[i] = at<S>(in[i]), kernel.packs = kernel.packs && in_packs<S>(0, kernel.in[i]);
      for (std::size_t i = 0; i < out.size(); ++i)
        kernel.out[i] = at<S>(out[i]), kernel.packs = kernel.packs && in_packs<S>(0, kernel.out[i]);
      run(name, kernel, kernel.n, 4096);
    });
  }

  template <class Op>
  void combine(const char* name, const Tensor& a, const Tensor& b, const Tensor& y) const {
    if (a.shape() == y.shape() && b.shape() == y.shape() && a.is_contiguous() &&
        b.is_contiguous() && y.is_contiguous())
      return elementwise(name, Op{}, {a, b}, {y});
    dispatch_kept(y, name, [&](auto zero) {
      using S = decltype(zero);
      const auto places =
          places_of<3>(name, y.shape(),
                       {stretched_strides(a.shape(), a.strides(), y.shape()),
                        stretched_strides(b.shape(), b.strides(), y.shape()), y.strides()});
      run(name, CombineStrided<S, Op>{at<S>(a), at<S>(b), at<S>(y), places}, y.elements(), 256);
    });
  }

  // Those of the tensors that the kernel is for (of type S of Kernel<S>), as many to a launch as
  // its table has room for.
  template <class Kernel, class Launch>
  static void in_slices(std::span<const Tensor> all, const Launch& launch) {
    using Part = typename Kernel::Part;
    using S = std::remove_const_t<std::remove_pointer_t<decltype(Part::numbers)>>;
    Kernel kernel{};
    for (const Tensor& x : all) {
      if (x.dtype() != dtype_of<S>()) continue;
      Part part{};
      part.elements = x.elements();
      part.numbers = at<S>(x);
      kernel.slices.add(part);
      if (!kernel.slices.full()) continue;
      launch(kernel);
      kernel = {};
    }
    launch(kernel);
  }

  static Targets targets_of(const Tensor& z, const Tensor& targets, std::int32_t ignore_index) {
    return {at<std::int32_t>(targets), z.size(-1), ignore_index};
  }

  // losses, and where they are not nullptr log_sums and the gradient.
  template <class S, class G>
  void cross_entropy_as(const Tensor& z, const Tensor& targets, std::int32_t ignore_index,
                        const Tensor& losses, float* log_sums, G* gradient, double weight) const {
    const std::int64_t vocabulary = z.size(-1);
    all_blocks("cross_entropy",
               CrossEntropy<S, G>{.logits = at<S>(z),
                                  .targets = targets_of(z, targets, ignore_index),
                                  .losses = at<float>(losses),
                                  .log_sums = log_sums,
                                  .gradient = gradient,
                                  .rows = targets.elements(),
                                  .weight = static_cast<float>(weight),
                                  .packs = in_packs(vocabulary, at<S>(z)) &&
                                           (!gradient || in_packs(vocabulary, gradient))});
  }

  template <class Rule, std::size_t states>
  void update(const char* name, const Rule& rule, const typename Rule::Factors& factors,
              const Tensor& p, const Tensor& g, const std::array<Tensor, states>& state,
              const Tensor& kept) const {
    const auto launch = [&](auto of_parameter, auto of_gradient) {
      using S = decltype(of_parameter);
      using G = decltype(of_gradient);
      OptimizerUpdate<Rule, S, G> kernel{.slices = {}, .rule = rule};
      typename OptimizerUpdate<Rule, S, G>::Parameter parameter{};
      parameter.elements = p.elements();
      parameter.values = at<float>(p);
      parameter.rounded = kept.defined() ? at<S>(kept) : nullptr;
      parameter.gradient = at<G>(g);
      float** into = parameter.state;
      for (const Tensor& each : state) *into++ = at<float>(each);
      parameter.factors = factors;
      kernel.slices.add(parameter);
      all_blocks(name, kernel);
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
    dispatch_kept(x, op, [&](auto zero) {
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
          .packs = in_packs(n, at<S>(x), other, at<S>(weight), sum_into, at<S>(y))};
      run(op, kernel, rows, 1);
    });
  }

  Launcher launcher_;
};

}  // namespace ringside::autograd::cuda

// ElementwiseOn: the operations of DeviceKernels that copy, fill, combine and sum elements.
// KernelsOn (kernels_on.hpp) derives from it and adds the others.
//
// Each function does the same four steps: choose the element type, take the addresses, check
// whether they fit packs, choose the number of blocks. A Launcher starts the kernel:
//
//     static constexpr Device device;
//     std::int64_t max_blocks(int threads) const;   how many blocks of `threads` can run at once
//     std::size_t max_shared_bytes() const;         how much shared memory a kernel may ask for
//     void run(const char* op, const Kernel& kernel, std::int64_t blocks) const;
//                                                   launches; `op` is for error messages
//     void gemm(const MatrixProduct&, const Tensor& a, const Tensor& b, const Tensor& c) const;
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/shared/elementwise.hpp"
#include "autograd/kernels/shared/optimizer.hpp"
#include "autograd/kernels/shared/strided.hpp"
#include "autograd/kernels/shared/sums.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/error.hpp"

namespace ringside::autograd::cuda {

template <class S>
S* at(const Tensor& x) {
  return reinterpret_cast<S*>(x.address());
}

// Calls body(S{}) with the storage dtype of x: S = float or Bf16.
template <class Body>
void dispatch_storage(const Tensor& x, const char* op, const Body& body) {
  if (x.dtype() == DType::fp32) return body(float{});
  if (x.dtype() == DType::bf16) return body(Bf16{});
  fail("{}: expected a tensor of fp32 or bf16 on {}, got {}", op, name_of(x.device()),
       name_of(x.dtype()));
}

// The layouts of several tensors that are read in one shape, in as few dimensions as possible:
// drops dimensions of size 1, and joins neighbouring dimensions that are contiguous in all tensors.
template <int tensors>
Layouts<tensors> layouts_of(const char* op, const Shape& shape,
                            const std::array<Shape, tensors>& strides) {
  Layouts<tensors> layouts;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const int last = layouts.dims - 1;
    bool joins = last >= 0;
    for (int t = 0; t < tensors && joins; ++t)
      joins = layouts.strides[t][last] == strides[static_cast<std::size_t>(t)][d] * shape[d];
    require(joins || layouts.dims < max_dims,
            "{}: a view of shape {} has more than {} dimensions that are not contiguous; "
            "copy it on the CPU",
            op, shape, max_dims);
    const int into = joins ? last : layouts.dims++;
    layouts.shape[into] = joins ? layouts.shape[into] * shape[d] : shape[d];
    for (int t = 0; t < tensors; ++t)
      layouts.strides[t][into] = strides[static_cast<std::size_t>(t)][d];
  }
  return layouts;
}

template <class Launcher>
class ElementwiseOn : public DeviceKernels {
 public:
  // ---- Copy and fill ----

  void copy(const Tensor& x, const Tensor& y) const override {
    if (x.elements() == 0) return;
    const auto layouts = layouts_of<2>("copy_", x.shape(), {x.strides(), y.strides()});
    if (x.dtype() != y.dtype())
      return x.dtype() == DType::bf16 ? convert<Bf16, float>(x, y, layouts)
                                      : convert<float, Bf16>(x, y, layouts);
    if (layouts.are_dense())
      return device_memory(Launcher::device)
          .copy_within(y.address(), x.address(),
                       static_cast<std::size_t>(x.elements()) * size_of(x.dtype()));
    x.dtype() == DType::bf16 ? copy_rows<std::uint16_t>(x, y, layouts)
                             : copy_rows<std::uint32_t>(x, y, layouts);
  }

  void fill(const Tensor& x, double value) const override {
    if (x.dtype() == DType::int32) return fill_as(x, static_cast<std::int32_t>(value));
    dispatch_storage(x, "fill_", [&]<class S>(S) { fill_as(x, static_cast<S>(value)); });
  }

  void fill_with(const Tensor& x, const Tensor& factor, double constant) const override {
    dispatch_storage(x, "fill_", [&]<class S>(S) {
      run("fill_",
          Fill<S>{at<S>(x), S(0.0f), at<float>(factor), static_cast<float>(constant), x.elements()},
          x.elements(), 256);
    });
  }

  // ---- Elementwise ----

  void add(const Tensor& a, const Tensor& b, const Tensor& y) const override {
    combine<Add>("add", a, b, y);
  }
  void multiply(const Tensor& a, const Tensor& b, const Tensor& y) const override {
    combine<Multiply>("mul", a, b, y);
  }

  void scale(const Tensor& x, double factor, const Tensor& y) const override {
    if (!x.is_contiguous()) copy(x, y);
    elementwise("scale", Scale{{}, static_cast<float>(factor)}, {x.is_contiguous() ? x : y}, {y});
  }
  void scale_by(const Tensor& x, const Tensor& factor) const override {
    elementwise("scale", ScaleBy{{}, at<float>(factor), 1}, {x}, {x});
  }
  void relu(const Tensor& x, const Tensor& y) const override {
    elementwise("relu", Relu{}, {x}, {y});
  }
  void relu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override {
    elementwise("relu", ReluBackward{}, {dy, x}, {dx});
  }
  void gelu(const Tensor& x, const Tensor& y) const override {
    elementwise("gelu", Gelu{}, {x}, {y});
  }
  void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const override {
    elementwise("gelu", GeluBackward{}, {dy, x}, {dx});
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
                           (n + 4095) / 4096, 1, launcher_.max_blocks(PartialSums<float>::threads));
    const Tensor partials = Tensor::empty({blocks}, DType::fp32, Launcher::device);
    launcher_.run("sum",
                  PartialSums<float>{at<float>(x), at<float>(partials), n,
                                     fits_packs<float>(0, at<float>(x))},
                  blocks);
    launcher_.run("sum", Total<float, float>{at<float>(partials), blocks, at<float>(total), factor},
                  1);
  }

  void mean_loss(const Tensor& losses, std::int64_t count, const Tensor& mean) const override {
    sum(losses, 1 / static_cast<double>(count), mean);
  }

  void sum_of_squares(std::span<const Tensor> all, const Tensor& total) const override {
    std::int64_t blocks = 0;
    for (const Tensor& x : all) blocks += blocks_for(x.elements());
    // Partial sums are fp64, which no tensor on a device can be: so an fp32 tensor of twice the
    // size.
    const Tensor partials = Tensor::empty({2 * blocks}, DType::fp32, Launcher::device);
    double* into = reinterpret_cast<double*>(partials.address());
    add_squares<float>(all, into);
    add_squares<Bf16>(all, into);
    launcher_.run("sum_of_squares",
                  Total<double, float>{reinterpret_cast<const double*>(partials.address()), blocks,
                                       at<float>(total)},
                  1);
  }

  void sum_to(const Tensor& y, const Tensor& x) const override {
    const Shape read = stretched_strides(x.shape(), x.strides(), y.shape());
    // The dimensions of y, divided into those that x keeps and those that are summed.
    Shape kept, summed, x_strides, y_strides, summed_strides;
    for (std::size_t d = 0; d < y.shape().size(); ++d) {
      const bool is_summed = read[d] == 0;
      (is_summed ? summed : kept).push_back(y.shape()[d]);
      (is_summed ? summed_strides : y_strides).push_back(y.strides()[d]);
      if (!is_summed) x_strides.push_back(read[d]);
    }
    dispatch_storage(y, "sum_to", [&]<class S>(S) {
      run("sum_to",
          SumTo<S>{at<S>(y), at<S>(x), layouts_of<2>("sum_to", kept, {x_strides, y_strides}),
                   layouts_of<1>("sum_to", summed, {summed_strides})},
          x.elements(), 256);
    });
  }

 protected:
  // Launches enough blocks for `items` if a block takes `each` of them at a time, but no more than
  // can run at once.
  template <class Kernel>
  void run(const char* op, const Kernel& kernel, std::int64_t items, std::int64_t each) const {
    if (items > 0)
      launcher_.run(op, kernel,
                    std::min((items + each - 1) / each, launcher_.max_blocks(Kernel::threads)));
  }

  // Launches as many blocks as the kernel asks for.
  template <class Kernel>
  void run(const char* op, const Kernel& kernel) const {
    if (kernel.blocks() > 0) launcher_.run(op, kernel, kernel.blocks());
  }

  Launcher launcher_;

 private:
  // Writes the partial sums of squares of the tensors of type S from `into` on, which it moves past
  // them. Starts another table whenever one is full.
  template <class S>
  void add_squares(std::span<const Tensor> all, double*& into) const {
    SquareSums<S> kernel{};
    const auto launch = [&] {
      kernel.partials = into;
      into += kernel.blocks();
      run("sum_of_squares", kernel);
      kernel.table = {};
    };
    for (const Tensor& x : all) {
      if (x.dtype() != dtype_of<S>()) continue;
      typename SquareSums<S>::Entry entry{};
      entry.elements = x.elements();
      entry.values = at<S>(x);
      kernel.table.add(entry);
      if (kernel.table.full()) launch();
    }
    launch();
  }

  template <class S>
  void fill_as(const Tensor& x, S value) const {
    run("fill_", Fill<S>{at<S>(x), value, nullptr, 0, x.elements()}, x.elements(), 256);
  }

  template <class From, class To>
  void convert(const Tensor& x, const Tensor& y, const Layouts<2>& layouts) const {
    const From* const from = at<From>(x);
    To* const to = at<To>(y);
    if (layouts.are_dense())
      run("copy_",
          Convert<From, To>{from, to, x.elements(), fits_packs(0, from) && fits_packs(0, to)},
          x.elements(), 4096);
    else
      run("copy_", CopyStrided<From, To>{from, to, layouts}, x.elements(), 256);
  }

  // Element by element; or pack by pack, if every row of both tensors is dense and whole packs.
  template <class S>
  void copy_rows(const Tensor& x, const Tensor& y, Layouts<2> layouts) const {
    constexpr int size = Pack<S>::size;
    const int last = layouts.dims - 1;
    bool packs = fits_packs(layouts.shape[last], at<S>(x), at<S>(y));
    for (int t = 0; t < 2; ++t) {
      packs = packs && layouts.strides[t][last] == 1;
      for (int d = 0; d < last; ++d) packs = packs && layouts.strides[t][d] % size == 0;
    }
    if (!packs)
      return run("copy_", CopyStrided<S, S>{at<S>(x), at<S>(y), layouts}, x.elements(), 256);
    layouts.shape[last] /= size;
    for (auto& strides : layouts.strides)
      for (int d = 0; d < last; ++d) strides[d] /= size;
    run("copy_", CopyStrided<PackBits, PackBits>{at<PackBits>(x), at<PackBits>(y), layouts},
        x.elements() / size, 256);
  }

  template <class Op>
  void elementwise(const char* name, const Op& op, const std::array<Tensor, Op::inputs>& in,
                   const std::array<Tensor, Op::outputs>& out) const {
    dispatch_storage(out[0], name, [&]<class S>(S) {
      Elementwise<S, Op> kernel{
          .op = op, .in = {}, .out = {}, .n = out[0].elements(), .packs = true};
      for (std::size_t i = 0; i < in.size(); ++i)
        kernel.in[i] = at<S>(in[i]), kernel.packs = kernel.packs && fits_packs<S>(0, kernel.in[i]);
      for (std::size_t i = 0; i < out.size(); ++i)
        kernel.out[i] = at<S>(out[i]),
        kernel.packs = kernel.packs && fits_packs<S>(0, kernel.out[i]);
      run(name, kernel, kernel.n, 4096);
    });
  }

  template <class Op>
  void combine(const char* name, const Tensor& a, const Tensor& b, const Tensor& y) const {
    if (a.shape() == y.shape() && b.shape() == y.shape() && a.is_contiguous() &&
        b.is_contiguous() && y.is_contiguous())
      return elementwise(name, Op{}, {a, b}, {y});
    dispatch_storage(y, name, [&]<class S>(S) {
      const auto layouts =
          layouts_of<3>(name, y.shape(),
                        {stretched_strides(a.shape(), a.strides(), y.shape()),
                         stretched_strides(b.shape(), b.strides(), y.shape()), y.strides()});
      run(name, CombineStrided<S, Op>{at<S>(a), at<S>(b), at<S>(y), layouts}, y.elements(), 256);
    });
  }
};

}  // namespace ringside::autograd::cuda

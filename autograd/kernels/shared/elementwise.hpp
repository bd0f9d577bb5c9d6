// Elementwise operations on contiguous memory, one pack of each input and output at a time, and the
// remaining elements one by one.
//
//     elements   [ 4096 ][ 4096 ][ 4096 ][ rest ]      blocks take ranges in turn;
//                                                      the threads of a block divide a range
//
// An operation is a type (Silu, Add, ...) with numbers of inputs and outputs, and a function
// of<B>() that computes one element in fp32: a float, or Floats for several outputs.
#pragma once

#include "autograd/kernels/block/block.hpp"
#include "autograd/kernels/gelu.hpp"

namespace ringside::autograd::cuda {

// for_each_in_range over 0..n-1, in ranges of 4096 elements that the blocks take in turn. `packs`:
// whether all addresses are aligned to 16 bytes, fits_packs(0, ...).
template <class S, Block B, class Body>
constexpr void for_each_in_ranges(B& block, std::int64_t n, bool packs, const Body& body) {
  constexpr std::int64_t length = 4096;
  for (std::int64_t begin = block.index() * length; begin < n; begin += block.count() * length) {
    const std::int64_t end = begin + length;
    for_each_in_range<S>(block, begin, end < n ? end : n, packs, body);
  }
}

template <class S, class Op>
struct Elementwise {
  static constexpr int threads = 256;
  Op op;
  const S* in[Op::inputs];
  S* out[Op::outputs];  // may be an input
  std::int64_t n;
  bool packs;

  template <Block B>
  constexpr void operator()(B& block) const {
    if (op.nothing_to_do()) return;
    for_each_in_ranges<S>(block, n, packs, [&](std::int64_t i, auto width) {
      constexpr int w = width.value;
      Floats<w> x[Op::inputs]{}, y[Op::outputs]{};
      for (int k = 0; k < Op::inputs; ++k) x[k] = load_floats<w>(in[k] + i);
      for (int j = 0; j < w; ++j) {
        const auto outputs = of_inputs<B>(x, j, std::make_integer_sequence<int, Op::inputs>{});
        for (int k = 0; k < Op::outputs; ++k) y[k].at[j] = outputs.at[k];
      }
      for (int k = 0; k < Op::outputs; ++k) store_floats<w>(out[k] + i, y[k]);
    });
  }

 private:
  // The operation on element j of each input.
  template <class B, int w, int... k>
  constexpr Floats<Op::outputs> of_inputs(const Floats<w> (&x)[Op::inputs], int j,
                                          std::integer_sequence<int, k...>) const {
    return {op.template of<B>(x[k].at[j]...)};
  }
};

// ---- Operations ----

template <int input_count, int output_count = 1>
struct Operation {
  static constexpr int inputs = input_count, outputs = output_count;
  constexpr bool nothing_to_do() const { return false; }
};

struct Add : Operation<2> {
  template <class B>
  constexpr float of(float a, float b) const {
    return a + b;
  }
};
struct Multiply : Operation<2> {
  template <class B>
  constexpr float of(float a, float b) const {
    return a * b;
  }
};
struct Scale : Operation<1> {
  float factor;
  template <class B>
  constexpr float of(float x) const {
    return x * factor;
  }
};
struct ScaleBy : Operation<1> {  // in place
  const float* factor;
  float constant;
  constexpr bool nothing_to_do() const { return constant * *factor == 1; }
  template <class B>
  constexpr float of(float x) const {
    return x * (constant * *factor);
  }
};

struct Relu : Operation<1> {
  template <class B>
  constexpr float of(float x) const {
    return x < 0 ? 0 : x;  // NaN stays NaN
  }
};
struct ReluBackward : Operation<2> {
  template <class B>
  constexpr float of(float dy, float x) const {
    return x > 0 ? dy : 0;
  }
};
struct Gelu : Operation<1> {
  template <class B>
  constexpr float of(float x) const {
    return x / (1 + B::exp(-gelu_u(x)));
  }
};
struct GeluBackward : Operation<2> {
  template <class B>
  constexpr float of(float dy, float x) const {
    const float s = 1 / (1 + B::exp(-gelu_u(x)));
    return dy * (s + x * s * (1 - s) * gelu_du(x));
  }
};
struct Silu : Operation<1> {
  template <class B>
  constexpr float of(float x) const {
    return x / (1 + B::exp(-x));
  }
};
struct SiluBackward : Operation<2> {
  template <class B>
  constexpr float of(float dy, float x) const {
    const float s = 1 / (1 + B::exp(-x));
    return dy * s * (1 + x * (1 - s));
  }
};
struct Swiglu : Operation<2> {
  template <class B>
  constexpr float of(float gate, float up) const {
    return gate / (1 + B::exp(-gate)) * up;
  }
};
struct SwigluBackward : Operation<3, 2> {  // -> dgate, dup
  template <class B>
  constexpr Floats<2> of(float dy, float gate, float up) const {
    const float s = 1 / (1 + B::exp(-gate));
    return {{dy * up * s * (1 + gate * (1 - s)), dy * gate * s}};
  }
};

// ---- y = x, of another type ----
template <class From, class To>
struct Convert {
  static constexpr int threads = 256;
  const From* x;
  To* y;
  std::int64_t n;
  bool packs;

  template <Block B>
  constexpr void operator()(B& block) const {
    for_each_in_ranges<Narrower<From, To>>(block, n, packs, [&](std::int64_t i, auto width) {
      store_floats<width.value>(y + i, load_floats<width.value>(x + i));
    });
  }
};

// ---- x = value; or constant * *factor, if factor is not nullptr ----
template <class S>
struct Fill {
  static constexpr int threads = 256;
  S* x;
  S value;
  const float* factor;
  float constant;
  std::int64_t n;

  template <Block B>
  constexpr void operator()(B& block) const {
    const S number = factor ? S(constant * *factor) : value;
    const std::int64_t step = block.count() * block.threads();
    for (std::int64_t i = block.index() * block.threads() + block.thread(); i < n; i += step)
      x[i] = number;
  }
};

}  // namespace ringside::autograd::cuda

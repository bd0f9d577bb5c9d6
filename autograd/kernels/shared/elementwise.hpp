// Elementwise operations on contiguous memory, one pack of each input and output at a time, and the
// remaining elements one by one.
//
//     elements   [ 4096 ][ 4096 ][ 4096 ][ rest ]      blocks take ranges in turn;
//                                                      the threads of a block divide a range
//
// An operation is a type (Silu, Add, ...) with numbers of inputs and outputs, and a function
// apply<B>(in, out) that computes one element in fp32.
#pragma once

#include "autograd/kernels/block/block.hpp"

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

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    if (op.nothing_to_do()) return;
    for_each_in_ranges<S>(block, n, packs, [&](std::int64_t i, auto width) {
      constexpr int w = width.value;
      Floats<w> x[Op::inputs]{}, y[Op::outputs]{};
      for (int k = 0; k < Op::inputs; ++k) x[k] = load_floats<w>(in[k] + i);
      for (int j = 0; j < w; ++j) {
        float inputs[Op::inputs]{}, outputs[Op::outputs]{};
        for (int k = 0; k < Op::inputs; ++k) inputs[k] = x[k].at[j];
        op.template apply<B>(inputs, outputs);
        for (int k = 0; k < Op::outputs; ++k) y[k].at[j] = outputs[k];
      }
      for (int k = 0; k < Op::outputs; ++k) store_floats<w>(out[k] + i, y[k]);
    });
  }
};

// ---- Operations ----

template <int input_count, int output_count>
struct Operation {
  static constexpr int inputs = input_count, outputs = output_count;
  constexpr bool nothing_to_do() const { return false; }
};

struct Add : Operation<2, 1> {
  template <class B>
  constexpr void apply(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};
struct Subtract : Operation<2, 1> {
  template <class B>
  constexpr void apply(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] - in[1];
  }
};
struct Multiply : Operation<2, 1> {
  template <class B>
  constexpr void apply(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] * in[1];
  }
};
struct Scale : Operation<1, 1> {
  float factor;
  template <class B>
  constexpr void apply(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0] * factor;
  }
};
struct ScaleBy : Operation<1, 1> {
  const float* factor;
  float constant;
  bool in_place;
  constexpr bool nothing_to_do() const { return in_place && constant * *factor == 1; }
  template <class B>
  constexpr void apply(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0] * (constant * *factor);
  }
};

struct Relu : Operation<1, 1> {
  template <class B>
  constexpr void apply(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0] < 0 ? 0 : in[0];  // NaN stays NaN
  }
};
struct ReluBackward : Operation<2, 1> {  // dy, x
  template <class B>
  constexpr void apply(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[1] > 0 ? in[0] : 0;
  }
};
struct Silu : Operation<1, 1> {
  template <class B>
  constexpr void apply(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0] / (1 + B::exp(-in[0]));
  }
};
struct SiluBackward : Operation<2, 1> {  // dy, x
  template <class B>
  constexpr void apply(const float (&in)[2], float (&out)[1]) const {
    const float s = 1 / (1 + B::exp(-in[1]));
    out[0] = in[0] * s * (1 + in[1] * (1 - s));
  }
};
struct Swiglu : Operation<2, 1> {  // gate, up
  template <class B>
  constexpr void apply(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] / (1 + B::exp(-in[0])) * in[1];
  }
};
struct SwigluBackward : Operation<3, 2> {  // dy, gate, up -> dgate, dup
  template <class B>
  constexpr void apply(const float (&in)[3], float (&out)[2]) const {
    const float dy = in[0], gate = in[1], up = in[2], s = 1 / (1 + B::exp(-gate));
    out[0] = dy * up * s * (1 + gate * (1 - s));
    out[1] = dy * gate * s;
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

  constexpr std::size_t shared_bytes() const { return 0; }

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

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const S number = factor ? S(constant * *factor) : value;
    const std::int64_t step = block.count() * block.threads();
    for (std::int64_t i = block.index() * block.threads() + block.thread(); i < n; i += step)
      x[i] = number;
  }
};

}  // namespace ringside::autograd::cuda

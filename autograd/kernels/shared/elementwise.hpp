// Element by element over contiguous memory, 16 bytes of each input and output at a time; what is
// left at the end one by one.
//
//     numbers   [ tile of 4096 ][ tile ][ tile ][ rest ]      blocks take tiles in turn, the threads of a block share out a tile
//
// What is computed is a type of its own (Silu, Add, ...), with so many inputs and outputs:
// `apply<B>(in, out)` for one element, in fp32.
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// for_each_from over 0..n-1, a tile of it to each block in turn. `packs`: whether the addresses are
// those of packs (in_packs(0, ...)).
template <class S, Block B, class Body>
constexpr void for_each_in_tiles(B& block, std::int64_t n, bool packs, const Body& body) {
  constexpr std::int64_t tile = 4096;
  for (std::int64_t begin = block.index() * tile; begin < n; begin += block.count() * tile) {
    const std::int64_t end = begin + tile;
    for_each_from<S>(block, begin, end < n ? end : n, packs, body);
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
    for_each_in_tiles<S>(block, n, packs, [&](std::int64_t i, auto width) {
      constexpr int w = width.value;
      Lanes<w> x[Op::inputs]{}, y[Op::outputs]{};
      for (int k = 0; k < Op::inputs; ++k) x[k] = widened<w>(in[k] + i);
      for (int lane = 0; lane < w; ++lane) {
        float given[Op::inputs]{}, made[Op::outputs]{};
        for (int k = 0; k < Op::inputs; ++k) given[k] = x[k].at[lane];
        op.template apply<B>(given, made);
        for (int k = 0; k < Op::outputs; ++k) y[k].at[lane] = made[k];
      }
      for (int k = 0; k < Op::outputs; ++k) narrow_into<w>(out[k] + i, y[k]);
    });
  }
};

// ---- What is computed ----

template <int given, int made>
struct Operation {
  static constexpr int inputs = given, outputs = made;
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
    out[0] = in[0] < 0 ? 0 : in[0];
  }  // NaN stays NaN
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

// ---- x = value, or constant * *factor where a factor is given ----
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

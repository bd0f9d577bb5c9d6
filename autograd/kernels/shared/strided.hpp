// The same for views of any strides: every thread takes an element apart into indices, and finds
// where it lies in each tensor.
//
//     element 5 of [2, 3]   =   (1, 2)   ->   1 * strides[t][0] + 2 * strides[t][1]        in tensor t
//
// The model's own views are read as they are by the kernels that need them; what comes here is
// rare, and goes element by element.
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

inline constexpr int most_dims = 8;

// A shape, and the strides with which each of some tensors is read in it (0: stretched).
template <int tensors>
struct Places {
  int dims = 0;
  std::int64_t shape[most_dims]{}, strides[tensors][most_dims]{};

  constexpr std::int64_t elements() const {
    std::int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= shape[d];
    return n;
  }
  // offset[t]: where element i, counted row by row, lies in tensor t.
  constexpr void find(std::int64_t i, std::int64_t (&offset)[tensors]) const {
    for (int t = 0; t < tensors; ++t) offset[t] = 0;
    for (int d = dims; d-- > 0;) {
      const std::int64_t index = i % shape[d];
      i /= shape[d];
      for (int t = 0; t < tensors; ++t) offset[t] += index * strides[t][d];
    }
  }
};

template <Block B, class Body>
constexpr void for_each_element(B& block, std::int64_t n, const Body& body) {
  const std::int64_t step = block.count() * block.threads();
  for (std::int64_t i = block.index() * block.threads() + block.thread(); i < n; i += step) body(i);
}

// y = x, converted where the types differ.
template <class From, class To>
struct CopyStrided {
  static constexpr int threads = 256;
  const From* x;
  To* y;
  Places<2> places;  // of x, y

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for_each_element(block, places.elements(), [&](std::int64_t i) {
      std::int64_t at[2]{};
      places.find(i, at);
      y[at[1]] = To(x[at[0]]);
    });
  }
};

// y = op(a, b), op one of elementwise.hpp. y may be a, if they are read alike.
template <class S, class Op>
struct CombineStrided {
  static constexpr int threads = 256;
  const S *a, *b;
  S* y;
  Places<3> places;  // of a, b, y

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    for_each_element(block, places.elements(), [&](std::int64_t i) {
      std::int64_t at[3]{};
      places.find(i, at);
      const float in[2]{static_cast<float>(a[at[0]]), static_cast<float>(b[at[1]])};
      float out[1]{};
      Op{}.template apply<B>(in, out);
      y[at[2]] = S(out[0]);
    });
  }
};

// x = sum of y over the dimensions along which x is stretched: a thread for each element of x.
template <class S>
struct SumTo {
  static constexpr int threads = 256;
  const S* y;
  S* x;
  Places<2> kept;    // of x, y: the dimensions that x has
  Places<1> summed;  // of y: the others

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    const std::int64_t copies = summed.elements();
    for_each_element(block, kept.elements(), [&](std::int64_t i) {
      std::int64_t at[2]{}, copy[1]{};
      kept.find(i, at);
      float total = 0;
      for (std::int64_t c = 0; c < copies; ++c) {
        summed.find(c, copy);
        total += static_cast<float>(y[at[1] + copy[0]]);
      }
      x[at[0]] = S(total);
    });
  }
};

}  // namespace ringside::autograd::cuda

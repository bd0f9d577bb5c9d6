// Operations on views of any strides. A thread converts the number of an element into indices, and
// the indices into an offset in each tensor:
//
//     element 5 of [2, 3]   =   (1, 2)   ->   1 * strides[t][0] + 2 * strides[t][1] in tensor t
//
// These kernels go element by element; a copy whose rows are dense takes packs for elements. They
// are rarely used: attention and rope read the model's views directly.
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

inline constexpr int max_dims = 8;

// A shape, and the strides with which each tensor is read in it. Stride 0 repeats an element along
// the dimension (broadcasting).
template <int tensors>
struct Layouts {
  int dims = 0;
  std::int64_t shape[max_dims]{}, strides[tensors][max_dims]{};

  constexpr std::int64_t elements() const {
    std::int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= shape[d];
    return n;
  }
  // Whether each tensor is one dense piece of memory, in the order of the elements.
  constexpr bool are_dense() const {
    bool dense = dims <= 1;
    for (int t = 0; t < tensors; ++t) dense = dense && (dims == 0 || strides[t][0] == 1);
    return dense;
  }
  // Sets offset[t] to the offset of element i in tensor t. Elements are counted in row-major order.
  template <class Index>
  constexpr void offsets_of(Index i, std::int64_t (&offset)[tensors]) const {
    for (int t = 0; t < tensors; ++t) offset[t] = 0;
    for (int d = dims; d-- > 0;) {
      const auto size = static_cast<Index>(shape[d]);
      const auto index = static_cast<std::int64_t>(i % size);
      i /= size;
      for (int t = 0; t < tensors; ++t) offset[t] += index * strides[t][d];
    }
  }
};

// Divides 0..n-1 among all threads of the launch. The number that body(i) gets has 32 bits if these
// are enough: a GPU divides 64-bit integers slowly.
template <Block B, class Body>
constexpr void for_each_element(B& block, std::int64_t n, const Body& body) {
  const std::int64_t step = block.count() * block.threads(),
                     first = block.index() * block.threads() + block.thread();
  if (n <= std::int64_t{1} << 31)
    for (auto i = static_cast<std::uint32_t>(first); i < n; i += static_cast<std::uint32_t>(step))
      body(i);
  else
    for (std::int64_t i = first; i < n; i += step) body(i);
}

// y = x, converted if the types differ. PackBits: the elements of a pack, copied in one
// instruction.
using PackBits = unsigned __int128;
template <class From, class To>
struct CopyStrided {
  static constexpr int threads = 256;
  const From* x;
  To* y;
  Layouts<2> layouts;  // of x, y

  template <Block B>
  constexpr void operator()(B& block) const {
    for_each_element(block, layouts.elements(), [&](auto i) {
      std::int64_t at[2]{};
      layouts.offsets_of(i, at);
      y[at[1]] = To(x[at[0]]);
    });
  }
};

// y = op(a, b), with an operation of elementwise.hpp. y may be a, if both have the same layout.
template <class S, class Op>
struct CombineStrided {
  static constexpr int threads = 256;
  const S *a, *b;
  S* y;
  Layouts<3> layouts;  // of a, b, y

  template <Block B>
  constexpr void operator()(B& block) const {
    for_each_element(block, layouts.elements(), [&](auto i) {
      std::int64_t at[3]{};
      layouts.offsets_of(i, at);
      y[at[2]] = S(Op{}.template of<B>(static_cast<float>(a[at[0]]), static_cast<float>(b[at[1]])));
    });
  }
};

// x = y summed over the dimensions along which x is broadcast. A thread for each element of x.
template <class S>
struct SumTo {
  static constexpr int threads = 256;
  const S* y;
  S* x;
  Layouts<2> kept;    // of x, y: the dimensions along which x is not broadcast
  Layouts<1> summed;  // of y: the other dimensions

  template <Block B>
  constexpr void operator()(B& block) const {
    const std::int64_t copies = summed.elements();
    for_each_element(block, kept.elements(), [&](auto i) {
      std::int64_t at[2]{}, copy[1]{};
      kept.offsets_of(i, at);
      float total = 0;
      for (std::int64_t c = 0; c < copies; ++c) {
        summed.offsets_of(c, copy);
        total += static_cast<float>(y[at[1] + copy[0]]);
      }
      x[at[0]] = S(total);
    });
  }
};

}  // namespace ringside::autograd::cuda

// rope on a GPU: a thread rotates some neighbouring pairs of a row. kernels/cpu/rope.cpp has the
// formulas.
#pragma once

#include "autograd/kernels/shared/strided.hpp"

namespace ringside::autograd::cuda {

// x, y [outer0, outer1, tokens, 2 half], with any strides but dense rows.
template <class S>
struct Rope {
  static constexpr int threads = 256;
  struct View {
    std::int64_t strides[3];  // of outer0, outer1, tokens
  };
  const S* x;
  S* y;
  View x_view, y_view;
  const float *cos, *sin;  // [positions, half]
  std::int64_t shape[3], half, first_position;
  float direction;
  bool packs;  // each half of every row is whole packs

  template <Block B>
  constexpr void operator()(B& block) const {
    packs ? rotate<Pack<S>::size>(block) : rotate<1>(block);
  }

 private:
  template <int width, Block B>
  constexpr void rotate(B& block) const {
    const std::int64_t all = shape[0] * shape[1] * shape[2] * (half / width);
    for_each_element(block, all, [&](auto job) {
      using Index = decltype(job);  // for the divisions
      const auto per_row = static_cast<Index>(half / width), tokens = static_cast<Index>(shape[2]),
                 heads = static_cast<Index>(shape[1]);
      const Index row = job / per_row;
      const std::int64_t i = job % per_row * width, token = row % tokens,
                         outer1 = row / tokens % heads, outer0 = row / tokens / heads;
      const std::int64_t angle = (first_position + token) * half + i;
      const S* const from = x + outer0 * x_view.strides[0] + outer1 * x_view.strides[1] +
                            token * x_view.strides[2] + i;
      S* const into = y + outer0 * y_view.strides[0] + outer1 * y_view.strides[1] +
                      token * y_view.strides[2] + i;
      auto low = load_floats<width>(from), high = load_floats<width>(from + half);
      const auto c = load_floats<width>(cos + angle), s = load_floats<width>(sin + angle);
      for (int k = 0; k < width; ++k) {
        const float a = low.at[k], b = high.at[k], sine = s.at[k] * direction;
        low.at[k] = a * c.at[k] - b * sine;
        high.at[k] = b * c.at[k] + a * sine;
      }
      store_floats<width>(into, low);
      store_floats<width>(into + half, high);
    });
  }
};

}  // namespace ringside::autograd::cuda

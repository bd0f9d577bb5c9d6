// rope on a GPU: a thread for some neighbouring pairs of a row. The formulas are those of
// ops/rope.cpp.
#pragma once

#include "autograd/kernels/block/block.hpp"

namespace ringside::autograd::cuda {

// x [outer0, outer1, tokens, 2 half] with dense rows -> y of that shape, in memory as its strides
// say.
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
  bool packs;  // whether half a row is whole packs, everywhere

  constexpr std::size_t shared_bytes() const { return 0; }

  template <Block B>
  constexpr void operator()(B& block) const {
    if (packs)
      turn<Pack<S>::size>(block);
    else
      turn<1>(block);
  }

 private:
  template <int width, Block B>
  constexpr void turn(B& block) const {
    const std::int64_t per_row = half / width, all = shape[0] * shape[1] * shape[2] * per_row,
                       step = block.count() * block.threads();
    for (std::int64_t job = block.index() * block.threads() + block.thread(); job < all;
         job += step) {
      const std::int64_t i = job % per_row * width, row = job / per_row;
      const std::int64_t token = row % shape[2], outer1 = row / shape[2] % shape[1],
                         outer0 = row / shape[2] / shape[1];
      const std::int64_t angle = (first_position + token) * half + i;
      const S* const from = x + outer0 * x_view.strides[0] + outer1 * x_view.strides[1] +
                            token * x_view.strides[2] + i;
      S* const into = y + outer0 * y_view.strides[0] + outer1 * y_view.strides[1] +
                      token * y_view.strides[2] + i;
      auto low = widened<width>(from), high = widened<width>(from + half);
      const auto c = widened<width>(cos + angle), s = widened<width>(sin + angle);
      for (int k = 0; k < width; ++k) {
        const float a = low.at[k], b = high.at[k], sine = s.at[k] * direction;
        low.at[k] = a * c.at[k] - b * sine;
        high.at[k] = b * c.at[k] + a * sine;
      }
      narrow_into<width>(into, low);
      narrow_into<width>(into + half, high);
    }
  }
};

}  // namespace ringside::autograd::cuda

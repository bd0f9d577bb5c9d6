// rope: rotary position embedding. Su et al., "RoFormer: enhanced transformer with rotary position
// embedding" (2021), section 3.2.
#include <cmath>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/kernels/rows.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/ops/rope_table.hpp"
#include "autograd/tensor/layout.hpp"

namespace ringside::autograd {

RopeTable rope_table(std::int64_t positions, std::int64_t head_size, double theta, DType dtype) {
  require(positions >= 0 && head_size > 0 && head_size % 2 == 0,
          "rope_table: expected an even head size, got {} ({} positions)", head_size, positions);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_size / 2; ++i)
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size)));
  return rope_table(positions, frequencies, dtype);
}

RopeTable rope_table(std::int64_t positions, const std::vector<double>& frequencies, DType dtype) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  RopeTable table{Tensor::empty({positions, half}, dtype), Tensor::empty({positions, half}, dtype)};
  dispatch(dtype, "rope_table", [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t p = 0; p < positions; ++p) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * frequencies[static_cast<std::size_t>(i)];
        table.cos.data<T>()[p * half + i] = static_cast<T>(std::cos(angle));
        table.sin.data<T>()[p * half + i] = static_cast<T>(std::sin(angle));
      }
    }
  });
  return table;
}

namespace {

// x [..., T, D] -> y: each pair (x_i, x_{i + D/2}) of row t is rotated by the angle of position
// first_position + t and frequency i:
//
//     | y_i       |   | cos  -sin | | x_i       |
//     | y_{i+D/2} | = | sin   cos | | x_{i+D/2} |
//
// Direction -1 rotates back: sin changes its sign.
Tensor rotate(const Tensor& x, const RopeTable& table, std::int64_t first_position, int direction) {
  Tensor y = empty_in_order_of(x);
  if (x.device() != Device::cpu) {
    device_kernels(x.device()).rope(x, table.cos, table.sin, first_position, direction, y);
    return y;
  }
  const std::int64_t half = x.size(-1) / 2, tokens = x.size(-2);
  const Rows x_rows(x), y_rows(y);
  dispatch_stored(x.dtype(), "rope", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const T sign = static_cast<T>(direction);
    parallel_for(x_rows.count(), row_grain(2 * half), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t position = first_position + row % tokens;
        const T* const cos = table.cos.data<T>() + position * half;
        const T* const sin = table.sin.data<T>() + position * half;
        const S* const px = x.data<S>() + x_rows.offset(row);
        S* const py = y.data<S>() + y_rows.offset(row);
#pragma omp simd
        for (std::int64_t i = 0; i < half; ++i) {
          const T s = sin[i] * sign, low = px[i], high = px[i + half];
          py[i] = low * cos[i] - high * s;
          py[i + half] = high * cos[i] + low * s;
        }
      }
    });
  });
  return y;
}

}  // namespace

// x [..., T, D], table [positions, D/2] -> y [..., T, D]
//
// The transpose of a rotation matrix is the rotation back: dx = rotate(dy, -angle).
Tensor rope(const Tensor& x_input, const RopeTable& table, std::int64_t first_position) {
  const Tensor x = with_dense_rows(x_input);
  require(x.dim() >= 2 && x.size(-1) % 2 == 0 && table.cos.dim() == 2 &&
              table.cos.size(1) * 2 == x.size(-1) && table.sin.shape() == table.cos.shape(),
          "rope: expected x [..., T, D] with D even and tables [positions, D/2], got {} and {}",
          x.shape(), table.cos.shape());
  require(compute_dtype(x.dtype()) == table.cos.dtype(),
          "rope: expected tables of {}, the compute dtype of {}, got {}",
          name_of(compute_dtype(x.dtype())), name_of(x.dtype()), name_of(table.cos.dtype()));
  require(x.device() == table.cos.device() && x.device() == table.sin.device(),
          "rope: expected tables on {} as x, got them on {} and {}", name_of(x.device()),
          name_of(table.cos.device()), name_of(table.sin.device()));
  require(first_position >= 0 && first_position + x.size(-2) <= table.cos.size(0),
          "rope: positions {}..{} are not all in a table of {}", first_position,
          first_position + x.size(-2) - 1, table.cos.size(0));
  return record("rope", rotate(x, table, first_position, +1), {x},
                [table, first_position](const Node&, const Tensor& dy) -> Gradients {
                  return {rotate(with_dense_rows(dy), table, first_position, -1)};
                });
}

}  // namespace ringside::autograd

// rope: rotary position embedding. Su et al., "RoFormer: enhanced transformer with rotary position
// embedding" (2021), section 3.2.
#include <cmath>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/device_kernels.hpp"
#include "autograd/ops/checks.hpp"
#include "autograd/ops/ops.hpp"
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
  dispatch(dtype, "rope_table", [&]<class T>(T) {
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

// Direction -1 rotates back.
Tensor rotate(const Tensor& x, const RopeTable& table, std::int64_t first_position, int direction) {
  const Tensor y = empty_in_order_of(x);
  kernels_of(x).rope(x, table.cos, table.sin, first_position, direction, y);
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

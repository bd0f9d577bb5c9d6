// What the judge calls: forward and backward of layers that are divided by rows.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

// This rank's rows of a layer.
struct RowsOfLayer {
  autograd::Tensor weight;
  bool has_gelu;
};

// The student's layers: what forward leaves in them is there for backward.
struct GatheredLayers {
  std::function<autograd::Tensor(const autograd::Tensor& x, collectives::ProcessGroup& group)>
      forward;
  std::function<autograd::Tensor(const autograd::Tensor& dy, collectives::ProcessGroup& group)>
      backward;
};

inline Student<GatheredLayers(const std::vector<RowsOfLayer>& layers)> student_layers;

}  // namespace ringside::exercises

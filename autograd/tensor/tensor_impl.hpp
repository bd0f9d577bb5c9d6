// Tensor::Impl: the variable that Tensor handles share. Included by tensor.cpp, layout.cpp and the
// files of engine/ only.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

struct Tensor::Impl : Layout {
  // The gradient side, read and written by engine/ only. This room never looks into a Node.
  bool requires_grad = false;
  std::shared_ptr<Node> grad_fn;  // of an op's result

  // Of a leaf that requires a gradient. Weak, because AccumulateGrad holds the leaf; while any
  // graph uses the leaf, there is exactly one.
  std::weak_ptr<AccumulateGrad> accumulate_grad;
  Tensor grad;
  Tensor grad_memory;  // lent by lend_grad_memory(), until the next gradient
  std::vector<std::pair<int, PostAccumulateGradHook>> hooks;
  int last_hook = 0;
};

}  // namespace ringside::autograd

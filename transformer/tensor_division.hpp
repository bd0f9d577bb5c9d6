// TensorDivision: what a model asks of the ranks that share its matrices (tensor parallel). Nothing
// else in the layers knows that there are other ranks.
//
//     x ── enter ──┬── q, k, v: some heads ── attention ── o ──┐
//                  └── gate, up: some of d_ff ───────── down ──┴── leave ── y
//
// enter stands before layers with divided outputs, leave after layers with divided inputs. Each
// rank computes a part of y; leave adds the parts up.
//
// The default is one rank, which holds everything: both functions return their argument.
// cli/training/ adapts tensor_parallel/ to this interface. Source: Shoeybi et al., "Megatron-LM"
// (2019), section 3, where enter is f and leave is g.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {
class RowStatistics;  // ops/vocabulary.hpp
}

namespace ringside::transformer {

class TensorDivision {
 public:
  virtual ~TensorDivision() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }

  // Called once before q, k and v together, once before gate and up, and once before the head.
  virtual autograd::Tensor enter(const autograd::Tensor& x) const { return x; }
  // Called once after o, after down and after the embedding: the sum of all ranks' parts.
  virtual autograd::Tensor leave(const autograd::Tensor& partial) const { return partial; }

  // Joins the maxima and the sums of the ranks' logits in the loss. Asked only if size() > 1.
  virtual const autograd::RowStatistics* row_statistics() const { return nullptr; }

  // Whether enter gathers and leave scatters the sequence, so that each rank holds 1/size() of the
  // tokens between them (sequence parallel). The gradients of norms are then sums over its tokens.
  virtual bool divides_sequence() const { return false; }
};

}  // namespace ringside::transformer

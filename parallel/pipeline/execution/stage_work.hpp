// StageWork: what the stages of one rank compute. The executor decides when.
//
// autograd_stages.hpp implements it for stages of a model; tests implement it with stages that
// sleep.
#pragma once

#include "autograd/tensor/tensor.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

class StageWork {
 public:
  virtual ~StageWork() = default;

  // F. `input` is the result of the stage before for this micro-batch; undefined for stage 0. The
  // stage keeps what its backward needs. Returns what the next stage needs, contiguous; what the
  // last stage returns is not used.
  virtual autograd::Tensor forward(int stage, int micro_batch, autograd::Tensor input) = 0;

  // B. `gradient` is that of the result of forward; undefined for the last stage. Adds the
  // gradients of the weights. Returns that of `input`, contiguous; what stage 0 returns is not
  // used.
  virtual autograd::Tensor backward(int stage, int micro_batch, autograd::Tensor gradient) = 0;

  // I and W: the two halves of B. I returns the gradient of `input`, W adds those of the weights.
  virtual autograd::Tensor backward_input(int stage, int micro_batch,
                                          autograd::Tensor gradient) = 0;
  virtual void backward_weight(int stage, int micro_batch) = 0;

  // REDUCE_GRAD: the gradients of the stage's weights are complete on this rank.
  virtual void reduce_gradients(int stage) = 0;

  // A tensor for a message to be received into: the input of receive.stage, or the gradient of its
  // result.
  virtual autograd::Tensor empty_for(const Action& receive) = 0;
};

}  // namespace ringside::pipeline_parallel

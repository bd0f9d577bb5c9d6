// Data parallelism, the first form: after backward, one all-reduce for each parameter.
//
//     ddp::Naive parallel(model, group);        every rank has rank 0's parameters
//     backward(loss);                           the gradients of this rank's share of the batch
//     parallel.finish();                        the mean over all ranks: the gradients of the whole batch
//     optimizer.step();                         the same step on every rank
//
// Each rank's loss must be the mean over its share, and the shares equally large: then the mean of
// the ranks' gradients is the gradient of the mean over the whole batch.
//
// What it costs: a model has many small parameters, so the time goes into latency, 2 (p-1) messages
// one after the other for each; and the network rests during backward, the processors during
// communication. flat.hpp mends the first, overlap the second.
#pragma once

#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

class Naive {
 public:
  // Makes all ranks' parameters and buffers those of rank 0. `module` and `group` must outlive
  // this.
  Naive(const autograd::Module& module, collectives::ProcessGroup& group);

  // Call after backward, on every rank. A parameter that got no gradient on any rank stays without
  // one; one that got a gradient on some ranks only is an Error that names it.
  void finish();

 private:
  std::vector<autograd::NamedTensor> parameters_;
  collectives::ProcessGroup& group_;
};

}  // namespace ringside::ddp

// Data parallelism, first version: one all-reduce for each parameter, after backward.
//
//     ddp::Naive parallel(model, group);     every rank gets the parameters of rank 0
//     backward(loss);                        gradients of this rank's share of the batch
//     parallel.finish();                     gradients of the whole batch
//     optimizer.step();                      the same update on every rank
//
// The loss of each rank must be the mean over its share, and all shares must have the same size.
// Then the mean of the ranks' gradients is the gradient of the mean loss over the whole batch.
//
// Cost: one call for each parameter, and many parameters are small. Latency dominates their calls:
// a ring all-reduce takes 2 (p-1) messages one after the other. Besides, the network is idle during
// backward, and the processors are idle during communication. flat.hpp removes the first cost,
// overlap.hpp the second.
//
// Reading order of this folder: naive, flat, overlap, then buckets.hpp, bucket_queue,
// gradient_buckets and bucketed.
#pragma once

#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

class Naive {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks. `module` and `group` must outlive
  // this object.
  Naive(const autograd::Module& module, collectives::ProcessGroup& group);

  // Replaces every gradient by its mean over all ranks. Every rank calls it after backward. A
  // parameter without a gradient on every rank stays without one. If only some ranks have a
  // gradient, it throws Error with the parameter's name.
  void finish();

 private:
  std::vector<autograd::NamedTensor> parameters_;
  collectives::ProcessGroup& group_;
};

}  // namespace ringside::ddp

// Data parallelism, second version: one all-reduce for all gradients, after backward.
//
//     gradients    [ w1          ] [ b1 ] [ w2       ] [ b2 ]
//                    | copy                                ^ copy back
//                    v                                     |
//     flat         [ w1          |  b1  |  w2       |  b2  ]      one all-reduce
//
// A step pays for the latency of one call instead of one call for each parameter (naive.hpp). In
// return it copies all gradients twice. The network is still idle during backward.
#pragma once

#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

class Flat {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks. `module` and `group` must outlive
  // this object. All trained parameters must have one dtype and lie on one device; otherwise it
  // throws Error.
  Flat(const autograd::Module& module, collectives::ProcessGroup& group);

  // Replaces every gradient by its mean over all ranks. Every rank calls it after backward. A
  // parameter without a gradient on every rank stays without one. If only some ranks have a
  // gradient, it throws Error with the names of the gradients that this rank lacks.
  void finish();

 private:
  std::vector<autograd::NamedTensor> parameters_;
  collectives::ProcessGroup& group_;
  autograd::Tensor flat_;  // [elements of all trained parameters]
};

}  // namespace ringside::ddp

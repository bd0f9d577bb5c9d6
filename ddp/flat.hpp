// Data parallelism, the second form: after backward, one all-reduce over all gradients, laid end to
// end.
//
//     gradients    [ w1          ] [ b1 ] [ w2       ] [ b2 ]
//                  copy ↓                                     ↑ copy back
//     flat         [ w1           | b1  |  w2       |  b2   ]       one all-reduce
//
// Latency is paid once, not once for each parameter (naive.hpp); the price is two passes over
// memory. The network still rests during backward.
#pragma once

#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"

namespace ringside::ddp {

class Flat {
 public:
  // Makes all ranks' parameters and buffers those of rank 0. `module` and `group` must outlive
  // this. All parameters that are trained must be of one type.
  Flat(const autograd::Module& module, collectives::ProcessGroup& group);

  // Call after backward, on every rank. A parameter that got no gradient on any rank stays without
  // one; one that got a gradient on some ranks only is an Error that names it.
  void finish();

 private:
  std::vector<autograd::NamedTensor> parameters_;
  collectives::ProcessGroup& group_;
  autograd::Tensor flat_;  // room for all gradients
};

}  // namespace ringside::ddp

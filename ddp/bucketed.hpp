// Data parallelism, fourth version: gradients travel in buckets. The all-reduce of a bucket starts
// as soon as all its gradients are complete.
//
//     backward    | layer 3 | layer 2 | layer 1 |
//     network               |  bucket 0  |  bucket 1  |
//
// There are few calls, as in flat.hpp, and they overlap with backward, as in overlap.hpp.
//
// buckets.hpp decides which gradients share a bucket, bucket_queue.hpp when a bucket is launched,
// and gradient_buckets.hpp keeps the gradients in the buckets' memory.
#pragma once

#include "autograd/nn/module.hpp"
#include "ddp/gradient_buckets.hpp"

namespace ringside::ddp {

class Bucketed : public GradientBuckets {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks. `module` and `group` must outlive
  // this object.
  Bucketed(const autograd::Module& module, collectives::ProcessGroup& group,
           double bucket_mb = default_bucket_mb);

  // Launches the buckets that still lack gradients, and waits for all. Every rank calls it after
  // backward. A parameter without a gradient on every rank has none afterwards. If only some ranks
  // have a gradient, it throws Error with the names of the gradients that this rank lacks.
  void finish();

 private:
  void launch(std::size_t bucket, const std::string& label) override;

  std::vector<ScopedWork> under_way_;  // [bucket]
};

}  // namespace ringside::ddp

// Data parallelism, the fourth form: gradients set out in buckets, each as soon as all of its
// gradients are ready.
//
//     backward    | layer 3 | layer 2 | layer 1 |
//     network               |  bucket 0  |  bucket 1  |
//
// Few calls, as in flat.hpp, and overlap, as in overlap.hpp. A gradient is written by backward
// straight into its bucket, and is read there by the optimizer: parameter.grad() is a view, and
// nothing is copied. (If the optimizer's zero_grad drops gradients, backward makes new ones, and
// they are copied into the bucket; zero_grad(false) keeps the views.)
//
// Which gradients travel together is decided in buckets.hpp, and when they set out in
// bucket_queue.hpp.
#pragma once

#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "collectives/process_group.hpp"
#include "ddp/bucket_queue.hpp"

namespace ringside::ddp {

class Bucketed {
 public:
  static constexpr double default_bucket_mb = 25;  // of 10^6 bytes

  // Makes all ranks' parameters and buffers those of rank 0. `module` and `group` must outlive
  // this.
  Bucketed(const autograd::Module& module, collectives::ProcessGroup& group,
           double bucket_mb = default_bucket_mb);

  // Call after backward, on every rank: starts the buckets that parameters without a gradient have
  // held up, and waits for all. A parameter that got no gradient on any rank is without one
  // afterwards; one that got a gradient on some ranks only is an Error that names it.
  void finish();

  // While the result lives, backward only adds gradients up, on this rank: for all but the last
  // micro-batch of a step.
  [[nodiscard]] Paused no_sync() { return queue_.pause(); }

  int launched() const { return queue_.launched(); }  // buckets started since the last finish()
  const std::vector<Bucket>& buckets() const { return queue_.buckets(); }

 private:
  void settle(std::size_t bucket, std::size_t entry);
  void launch(std::size_t bucket, const std::string& label);
  autograd::Tensor place(std::size_t bucket, std::size_t entry) const;

  collectives::ProcessGroup& group_;
  std::vector<autograd::Tensor> flats_;  // [bucket]: all of its gradients, end to end
  std::vector<collectives::Work> under_way_;
  BucketQueue queue_;  // last: its hooks go before what they use
};

}  // namespace ringside::ddp

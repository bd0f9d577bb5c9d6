#include "zero/zero1.hpp"

#include "ddp/tensor_collectives.hpp"

namespace ringside::zero {

using autograd::Tensor;

Zero1::Zero1(const autograd::Module& module, collectives::ProcessGroup& group, double bucket_mb,
             const ddp::Alone& alone)
    : GradientBuckets(ddp::plan_buckets(module, bucket_mb, alone), group),
      parameters_(module, buckets(), group) {
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    allocate_next(plan().padded_elements(b));
    has_gradient_.emplace_back(buckets()[b].entries.size());
  }
}

void Zero1::launch(std::size_t b, const std::string& label) {
  take_gradients(b);
  under_way_.push_back(
      ddp::reduce_scatter_mean_async(memory(b), plan().shard_of(memory(b), b), group_, label));
}

void Zero1::finish() {
  launch_rest();
  for (std::size_t b = 0; b < under_way_.size(); ++b) wait(under_way_[b], b);
  under_way_.clear();
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    const Tensor averaged = plan().shard_of(memory(b), b);
    for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e) {
      has_gradient_[b][e] = has_gradient(b, e);
      const Tensor& shard = parameters_.shards()[b][e];
      if (!shard.defined()) continue;
      shard.set_grad(has_gradient(b, e) ? plan().parameter_shard(averaged, {b, e}) : Tensor());
    }
  }
  return_gradients();
  start_over();
}

}  // namespace ringside::zero

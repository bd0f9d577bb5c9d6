#include "ddp/bucketed.hpp"

#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

Bucketed::Bucketed(const autograd::Module& module, collectives::ProcessGroup& group,
                   double bucket_mb)
    : GradientBuckets(plan_buckets(module, bucket_mb), group) {
  replicate(module, group);
  for (const Bucket& bucket : buckets()) allocate_next(bucket.elements);
}

void Bucketed::launch(std::size_t b, const std::string& label) {
  take_gradients(b);
  under_way_.push_back(all_reduce_mean_async(memory(b), group_, label));
}

void Bucketed::finish() {
  launch_rest();
  for (std::size_t b = 0; b < under_way_.size(); ++b) wait(under_way_[b], b);
  under_way_.clear();
  return_gradients();
  start_over();
}

}  // namespace ringside::ddp

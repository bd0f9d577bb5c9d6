#include "ddp/gradient_buckets.hpp"

namespace ringside::ddp {

using autograd::Tensor;

GradientBuckets::~GradientBuckets() {
  for (const Bucket& bucket : buckets())
    for (const BucketEntry& entry : bucket.entries) entry.parameter.tensor.lend_grad_memory({});
}

void GradientBuckets::allocate_next(std::int64_t elements) {
  const autograd::MemoryScope scope(autograd::MemoryKind::gradients);
  const std::size_t b = memory_.size();
  memory_.push_back(Tensor::zeros({elements}, buckets()[b].dtype, buckets()[b].device));
  for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e)
    buckets()[b].entries[e].parameter.tensor.lend_grad_memory(view(b, e));
}

void GradientBuckets::copy_into_bucket(std::size_t b, std::size_t e) {
  const Tensor& parameter = buckets()[b].entries[e].parameter.tensor;
  if (parameter.grad().storage() == memory_[b].storage()) return;
  view(b, e).copy_(parameter.grad());
  parameter.set_grad(view(b, e));
}

void GradientBuckets::zero_in_bucket(std::size_t b, std::size_t e) {
  view(b, e).fill_(0);
}

void GradientBuckets::take_gradients(std::size_t b) const {
  for (const BucketEntry& entry : buckets()[b].entries) entry.parameter.tensor.set_grad({});
}

void GradientBuckets::return_gradients() const {
  for (std::size_t b = 0; b < buckets().size(); ++b)
    for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e) {
      const Tensor& parameter = buckets()[b].entries[e].parameter.tensor;
      parameter.set_grad(has_gradient(b, e) ? view(b, e) : Tensor());
      parameter.lend_grad_memory(view(b, e));
    }
}

Tensor GradientBuckets::view(std::size_t b, std::size_t e) const {
  return view_in(memory_[b], buckets()[b].entries[e]);
}

}  // namespace ringside::ddp

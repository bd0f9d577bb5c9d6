#include "ddp/fewer_bytes/local_updates.hpp"

#include "ddp/fewer_bytes/whole_bucket.hpp"
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::ddp {

using autograd::NamedTensor;
using autograd::Tensor;

LocalUpdates::LocalUpdates(const autograd::Module& module, collectives::ProcessGroup& group,
                           int steps, const OuterStep& outer)
    : group_(group),
      bucket_(whole_bucket(module, "training with local steps")),
      steps_(steps),
      outer_step_(outer) {
  require(steps >= 1, "a round of local training needs at least 1 step, not {}", steps);
  replicate(module, group);
  const autograd::MemoryScope scope(autograd::MemoryKind::gradients);
  flat_ = Tensor::empty({bucket_.elements}, bucket_.dtype);
  if (outer.learning_rate == 1 && outer.momentum == 0) return;
  begin_ = Tensor::empty({bucket_.elements}, bucket_.dtype);
  velocity_ = Tensor::zeros({bucket_.elements}, bucket_.dtype);
  for (const BucketEntry& entry : bucket_.entries)
    view_in(begin_, entry).copy_(entry.parameter.tensor);
}

void LocalUpdates::after_update() {
  if (++taken_ < steps_) return;
  taken_ = 0;
  for (const BucketEntry& entry : bucket_.entries)
    view_in(flat_, entry).copy_(entry.parameter.tensor);
  all_reduce_mean(flat_, group_, "parameters after local steps");
  if (begin_.defined())
    autograd::dispatch(bucket_.dtype, "diloco",
                       [&](auto zero) { take_outer_step<decltype(zero)>(); });
  for (const BucketEntry& entry : bucket_.entries)
    entry.parameter.tensor.copy_(view_in(flat_, entry));
}

template <class T>
void LocalUpdates::take_outer_step() {
  const auto rate = static_cast<T>(outer_step_.learning_rate),
             momentum = static_cast<T>(outer_step_.momentum);
  T* const flat = flat_.data<T>();
  T* const begin = begin_.data<T>();
  T* const velocity = velocity_.data<T>();
  for (std::int64_t i = 0; i < bucket_.elements; ++i) {
    const T difference = begin[i] - flat[i];
    velocity[i] = momentum * velocity[i] + difference;
    begin[i] -= rate * (difference + momentum * velocity[i]);
    flat[i] = begin[i];
  }
}

void LocalUpdates::visit_mean(const autograd::Module& module,
                              const std::function<void(const NamedTensor&)>& see) const {
  for (const NamedTensor& parameter : module.named_parameters()) {
    if (taken_ == 0 || !parameter.tensor.requires_grad()) {
      see(parameter);
      continue;
    }
    const Tensor mean = parameter.tensor.detach().clone();
    all_reduce_mean(mean, group_, "mean of the replicas");
    see({parameter.name, mean});
  }
}

}  // namespace ringside::ddp

#include "ddp/bucketed.hpp"

#include "parallel/replicate.hpp"

namespace ringside::ddp {

using autograd::Tensor;

Bucketed::Bucketed(const autograd::Module& module, collectives::ProcessGroup& group,
                   double bucket_mb)
    : group_(group),
      queue_(
          plan_buckets(module, bucket_mb), [this](std::size_t b, std::size_t e) { settle(b, e); },
          [this](std::size_t b, const std::string& label) { launch(b, label); }) {
  replicate(module, group);
  const autograd::MemoryScope gradients(autograd::MemoryKind::gradients);
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    flats_.push_back(
        Tensor::zeros({buckets()[b].elements}, buckets()[b].dtype, buckets()[b].device));
    for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e)
      buckets()[b].entries[e].parameter.tensor.set_grad(place(b, e));
  }
}

void Bucketed::settle(std::size_t b, std::size_t e) {
  const Tensor& parameter = buckets()[b].entries[e].parameter.tensor;
  if (parameter.grad().storage() == flats_[b].storage()) return;
  place(b, e).copy_(
      parameter.grad());  // backward made a new gradient, because the view had been dropped
  parameter.set_grad(place(b, e));
}

void Bucketed::launch(std::size_t b, const std::string& label) {
  for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e)
    if (!queue_.has_gradient(b, e))
      place(b, e).fill_(0);  // whatever was there is of an earlier step
  under_way_.push_back(average_async(flats_[b], group_, label));
}

void Bucketed::finish() {
  queue_.launch_rest();
  for (const auto& work : std::exchange(under_way_, {})) work.wait();
  for (std::size_t b = 0; b < buckets().size(); ++b)
    for (std::size_t e = 0; e < buckets()[b].entries.size(); ++e)
      if (!queue_.has_gradient(b, e)) buckets()[b].entries[e].parameter.tensor.set_grad({});
  queue_.start_over();
}

Tensor Bucketed::place(std::size_t b, std::size_t e) const {
  return view_in(flats_[b], buckets()[b].entries[e]);
}

}  // namespace ringside::ddp

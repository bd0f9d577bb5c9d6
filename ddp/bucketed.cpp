#include "ddp/bucketed.hpp"

#include "base/error.hpp"
#include "ddp/replicate.hpp"

namespace ringside::ddp {

Bucketed::Bucketed(const autograd::Module& module, collectives::ProcessGroup& group, double bucket_mb) : group_(group) {
  require(bucket_mb > 0, "a bucket must be larger than {} MB", bucket_mb);
  replicate(module, group);
  const auto limit = static_cast<std::size_t>(bucket_mb * 1e6) + 1;
  plan_ = plan_buckets(trained_parameters(module), limit, std::min(limit, static_cast<std::size_t>(first_bucket_mb * 1e6)));
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    states_.push_back({autograd::Tensor::zeros({plan_[b].elements}, plan_[b].dtype), std::vector<bool>(plan_[b].entries.size()),
                       std::vector<bool>(plan_[b].entries.size()), 0});
    for (std::size_t e = 0; e < plan_[b].entries.size(); ++e) {
      const autograd::Tensor& parameter = plan_[b].entries[e].parameter.tensor;
      parameter.set_grad(view(b, e));
      hooks_.add(parameter, [this, b, e](const autograd::Tensor&) { on_ready(b, e); });
    }
  }
}

void Bucketed::on_ready(std::size_t b, std::size_t e) {
  const autograd::Tensor& parameter = plan_[b].entries[e].parameter.tensor;
  const autograd::Tensor place = view(b, e);
  if (parameter.grad().storage() != place.storage()) {  // backward made a new gradient, because the view had been dropped
    place.copy_(parameter.grad());
    parameter.set_grad(place);
  }
  if (!synchronising_) {
    states_[b].held[e] = true;
    return;
  }
  states_[b].ready[e] = true;
  states_[b].ready_count += 1;
  while (next_ < static_cast<int>(plan_.size()) && states_[static_cast<std::size_t>(next_)].ready_count == plan_[static_cast<std::size_t>(next_)].entries.size())
    start_next_bucket();
}

void Bucketed::start_next_bucket() {
  const auto b = static_cast<std::size_t>(next_++);
  std::string label = fmt::format("bucket {}", b);
  const std::size_t missing = plan_[b].entries.size() - states_[b].ready_count;
  for (std::size_t e = 0; missing > 0 && e < plan_[b].entries.size(); ++e) {
    if (states_[b].ready[e] || states_[b].held[e]) continue;
    view(b, e).fill_(0);  // whatever was there is of an earlier step
    if (label.find("without") == std::string::npos) label += " without " + plan_[b].entries[e].parameter.name;
  }
  under_way_.push_back(average_async(states_[b].flat, group_, label));
}

void Bucketed::finish() {
  while (next_ < static_cast<int>(plan_.size())) start_next_bucket();
  for (const auto& work : std::exchange(under_way_, {})) work.wait();
  next_ = 0;
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    for (std::size_t e = 0; e < plan_[b].entries.size(); ++e)
      if (!states_[b].ready[e] && !states_[b].held[e]) plan_[b].entries[e].parameter.tensor.set_grad({});
    states_[b].ready.assign(plan_[b].entries.size(), false);
    states_[b].held.assign(plan_[b].entries.size(), false);
    states_[b].ready_count = 0;
  }
}

autograd::Tensor Bucketed::view(std::size_t b, std::size_t e) const {
  const auto& [parameter, begin] = plan_[b].entries[e];
  return autograd::Tensor::view_of(states_[b].flat.storage(), begin, parameter.tensor.shape(), parameter.tensor.dtype());
}

}  // namespace ringside::ddp

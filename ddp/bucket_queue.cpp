#include "ddp/bucket_queue.hpp"

#include "base/error.hpp"

namespace ringside::ddp {

BucketQueue::BucketQueue(std::vector<Bucket> plan, Arrived arrived, Launch launch)
    : plan_(std::move(plan)),
      arrived_(std::move(arrived)),
      launch_(std::move(launch)),
      ready_count_(plan_.size()) {
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    ready_.emplace_back(plan_[b].entries.size());
    held_.emplace_back(plan_[b].entries.size());
    for (std::size_t e = 0; e < plan_[b].entries.size(); ++e)
      hooks_.add(plan_[b].entries[e].parameter.tensor,
                 [this, b, e](const autograd::Tensor&) { on_gradient(b, e); });
  }
}

void BucketQueue::on_gradient(std::size_t b, std::size_t e) {
  arrived_(b, e);
  require(!ready_[b][e],
          "the gradient of {} is complete a second time, and its bucket may have set out: call "
          "finish() after every backward, or "
          "no_sync() "
          "before all but the last",
          plan_[b].entries[e].parameter.name);
  if (!launching_) {
    held_[b][e] = true;
    return;
  }
  ready_[b][e] = true;
  ready_count_[b] += 1;
  while (next_ < plan_.size() && ready_count_[next_] == plan_[next_].entries.size()) launch_next();
}

void BucketQueue::launch_next() {
  const std::size_t b = next_++;
  std::string label = fmt::format("bucket {}", b);
  for (std::size_t e = 0; e < plan_[b].entries.size(); ++e) {
    if (has_gradient(b, e)) continue;
    label += " without " + plan_[b].entries[e].parameter.name;
    break;  // one name tells enough
  }
  launch_(b, label);
}

void BucketQueue::launch_rest() {
  while (next_ < plan_.size()) launch_next();
}

void BucketQueue::start_over() {
  next_ = 0;
  for (std::size_t b = 0; b < plan_.size(); ++b) {
    ready_[b].assign(plan_[b].entries.size(), false);
    held_[b].assign(plan_[b].entries.size(), false);
    ready_count_[b] = 0;
  }
}

}  // namespace ringside::ddp

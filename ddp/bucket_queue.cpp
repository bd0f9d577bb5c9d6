#include "ddp/bucket_queue.hpp"

#include "ddp/gradient_errors.hpp"

namespace ringside::ddp {

BucketQueue::BucketQueue(std::vector<Bucket> buckets, collectives::ProcessGroup& group)
    : group_(group), buckets_(std::move(buckets)), missing_(buckets_.size()) {
  start_over();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t e = 0; e < buckets_[b].entries.size(); ++e)
      hooks_.add(buckets_[b].entries[e].parameter.tensor,
                 [this, b, e](const autograd::Tensor&) { on_gradient(b, e); });
}

// The hook: backward has completed the gradient of entry e of bucket b.
void BucketQueue::on_gradient(std::size_t b, std::size_t e) {
  before_gradient();
  if (ready_[b][e]) refuse_second_gradient(buckets_[b].entries[e].parameter.name);
  copy_into_bucket(b, e);
  if (!launching_) {
    held_[b][e] = true;
    return;
  }
  ready_[b][e] = true;
  ++ready_count_[b];
  while (next_ < buckets_.size() && is_complete(next_)) launch_next();
}

bool BucketQueue::is_complete(std::size_t b) const {
  return ready_count_[b] == buckets_[b].entries.size();
}

void BucketQueue::launch_next() {
  const std::size_t b = next_++;
  for (std::size_t e = 0; e < buckets_[b].entries.size(); ++e)
    if (!has_gradient(b, e)) zero_in_bucket(b, e);
  missing_[b] = missing_in(b);
  try {
    launch(b, label_without(fmt::format("bucket {}", b), missing_[b]));
  } catch (const Error& error) {
    rethrow_with_names(error, group_.rank(), missing_[b]);
  }
}

void BucketQueue::launch_rest() {
  while (next_ < buckets_.size()) launch_next();
}

void BucketQueue::launch_needed(const std::vector<bool>& needed) {
  while (next_ < buckets_.size()) {
    if (needed[next_])
      launch_next();
    else
      ++next_;
  }
}

void BucketQueue::wait(const ScopedWork& work, std::size_t b) const {
  try {
    work.wait();
  } catch (const Error& error) {
    rethrow_with_names(error, group_.rank(), missing_[b]);
  }
}

std::vector<std::string> BucketQueue::missing_in(std::size_t b) const {
  std::vector<std::string> missing;
  for (std::size_t e = 0; e < buckets_[b].entries.size(); ++e)
    if (!has_gradient(b, e)) missing.push_back(buckets_[b].entries[e].parameter.name);
  return missing;
}

void BucketQueue::start_over() {
  next_ = 0;
  ready_.clear();
  for (const Bucket& bucket : buckets_) ready_.emplace_back(bucket.entries.size());
  held_ = ready_;
  ready_count_.assign(buckets_.size(), 0);
}

}  // namespace ringside::ddp

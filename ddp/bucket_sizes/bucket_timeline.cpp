#include "ddp/bucket_sizes/bucket_timeline.hpp"

#include <algorithm>

namespace ringside::ddp {

double exposed_seconds(const BucketModel& model, const std::vector<ReadyBucket>& buckets,
                       double backward) {
  double free = 0;  // when the link has carried all earlier buckets
  for (const ReadyBucket& bucket : buckets)
    free = std::max(free, bucket.ready) + model.call_seconds(bucket.bytes);
  return std::max(0.0, free - backward);
}

}  // namespace ringside::ddp

// Predicts exposed communication by following the buckets in time: when each bucket's gradients are
// ready, and until when the link is busy.
//
//     compute   | forward |   backward         |wait|
//                            ready   ready     |
//                              0       1   2   |
//     network                  | bucket 0  | bucket 1 | bucket 2 |
//                                          '- ready before: the link was busy
//
// The formula of bucket_model.hpp assumes that the network keeps up with backward, so that only the
// last bucket is exposed. This follows any network and buckets of any sizes.
#pragma once

#include <vector>

#include "ddp/bucket_sizes/bucket_model.hpp"

namespace ringside::ddp {

struct ReadyBucket {
  double bytes = 0;
  double ready = 0;  // seconds from the beginning of backward until its last gradient is complete
};

// The seconds between the end of backward, which takes `backward` seconds, and the end of the last
// call. The buckets are in the order of their numbers, in which they are launched: a bucket waits
// for those before it.
double exposed_seconds(const BucketModel& model, const std::vector<ReadyBucket>& buckets,
                       double backward);

}  // namespace ringside::ddp

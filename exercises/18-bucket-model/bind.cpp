// Compiled with the student's files each time that one of them changes.
#include "bucket_model.cpp"
#include "exercises/18-bucket-model/interface.hpp"

namespace ringside::exercises {
namespace {

using student::ddp::BucketModel;

double exposed_seconds(double overhead, double bandwidth, double total_bytes, double buckets) {
  return BucketModel{overhead, bandwidth}.exposed_seconds(total_bytes, buckets);
}
double best_bucket_bytes(double overhead, double bandwidth, double total_bytes) {
  return BucketModel{overhead, bandwidth}.best_bucket_bytes(total_bytes);
}

[[maybe_unused]] const bool bound = student_exposed_seconds.bind(exposed_seconds) &&
                                    student_best_bucket_bytes.bind(best_bucket_bytes);

}  // namespace
}  // namespace ringside::exercises

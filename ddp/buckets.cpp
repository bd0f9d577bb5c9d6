#include "ddp/buckets.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "ddp/replicate.hpp"

namespace ringside::ddp {

std::vector<Bucket> plan_buckets(const std::vector<autograd::NamedTensor>& parameters,
                                 std::size_t limit, std::size_t first_limit, const Alone& alone) {
  require(limit > 0 && first_limit > 0, "a bucket must hold at least one byte");
  std::vector<Bucket> buckets;
  bool closed = false;  // the last bucket takes no more
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const autograd::Tensor& tensor = parameter->tensor;
    const std::size_t limit_here = buckets.size() <= 1 ? first_limit : limit;
    const bool is_alone =
        std::find(alone.names.begin(), alone.names.end(), parameter->name) != alone.names.end();
    const bool fits =
        !buckets.empty() && !closed && !is_alone && buckets.back().dtype == tensor.dtype() &&
        buckets.back().device == tensor.device() &&
        (buckets.back().elements + tensor.elements()) * size_of(tensor.dtype()) <= limit_here;
    if (!fits) buckets.push_back({{}, 0, tensor.dtype(), tensor.device()});
    Bucket& bucket = buckets.back();
    bucket.entries.push_back({*parameter, bucket.elements});
    bucket.elements += tensor.elements();
    closed = is_alone;
  }
  return buckets;
}

std::vector<Bucket> plan_buckets_in_mb(const std::vector<autograd::NamedTensor>& parameters,
                                       double bucket_mb, const Alone& alone) {
  require(bucket_mb > 0, "a bucket must hold more than 0 MB, but its limit is {} MB", bucket_mb);
  const auto limit = static_cast<std::size_t>(bucket_mb * 1e6) + 1;
  return plan_buckets(parameters, limit,
                      std::min(limit, static_cast<std::size_t>(first_bucket_mb * 1e6)), alone);
}

std::vector<Bucket> plan_buckets(const autograd::Module& module, double bucket_mb,
                                 const Alone& alone) {
  return plan_buckets_in_mb(trained_parameters(module), bucket_mb, alone);
}

autograd::Tensor view_in(const autograd::Tensor& flat, const BucketEntry& entry) {
  const autograd::Tensor& tensor = entry.parameter.tensor;
  return autograd::Tensor::view_of(flat.storage(), flat.offset() + entry.begin, tensor.shape(),
                                   tensor.dtype());
}

}  // namespace ringside::ddp

#include "ddp/buckets.hpp"

#include "base/error.hpp"

namespace ringside::ddp {

std::vector<Bucket> plan_buckets(const std::vector<autograd::NamedTensor>& parameters, std::size_t limit, std::size_t first_limit) {
  require(limit > 0 && first_limit > 0, "a bucket must hold at least one byte");
  std::vector<Bucket> buckets;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const autograd::Tensor& tensor = parameter->tensor;
    const std::size_t limit_here = buckets.size() <= 1 ? first_limit : limit;
    const bool fits = !buckets.empty() && buckets.back().dtype == tensor.dtype() &&
                      (buckets.back().elements + tensor.elements()) * size_of(tensor.dtype()) <= limit_here;
    if (!fits) buckets.push_back({{}, 0, tensor.dtype()});
    Bucket& bucket = buckets.back();
    bucket.entries.push_back({*parameter, bucket.elements});
    bucket.elements += tensor.elements();
  }
  return buckets;
}

}  // namespace ringside::ddp

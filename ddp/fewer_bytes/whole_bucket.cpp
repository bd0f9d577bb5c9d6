#include "ddp/fewer_bytes/whole_bucket.hpp"

#include <limits>

#include "base/error.hpp"
#include "ddp/replicate.hpp"

namespace ringside::ddp {

Bucket whole_bucket(const autograd::Module& module, std::string_view method) {
  const auto parameters = trained_parameters(module);
  require(!parameters.empty(), "{} needs a module with at least one trained parameter", method);
  const autograd::DType dtype = parameters.front().tensor.dtype();
  for (const auto& [name, parameter] : parameters) {
    require(parameter.dtype() != autograd::DType::bf16,
            "{} compresses gradients of fp32 or fp64, but {} is bf16: train with --dtype fp32, or "
            "choose flat or bucketed",
            method, name);
    require(parameter.dtype() == dtype, "{} takes one dtype, but {} is {} and {} is {}", method,
            parameters.front().name, name_of(dtype), name, name_of(parameter.dtype()));
    require(parameter.device() == autograd::Device::cpu,
            "{} compresses on the CPU, but {} is on another device: choose flat or bucketed",
            method, name);
  }
  constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  return plan_buckets(parameters, unlimited, unlimited).front();
}

}  // namespace ringside::ddp

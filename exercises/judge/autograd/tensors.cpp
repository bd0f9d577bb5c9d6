#include "exercises/judge/autograd/tensors.hpp"

#include <bit>
#include <cmath>

#include <fmt/ranges.h>

#include "autograd/kernels/copy.hpp"
#include "base/random.hpp"

namespace ringside::exercises {

using namespace autograd;

Tensor random_tensor(Shape shape, std::uint64_t seed, std::uint64_t which) {
  const Tensor tensor = Tensor::empty(std::move(shape), DType::fp64);
  std::uint64_t counter = 0;
  for (double& each : tensor.values<double>()) each = random_normal(seed, which, counter++);
  return tensor;
}

Json json_of(double number) {
  if (std::isnan(number)) return "nan";  // whatever its sign
  return std::isfinite(number) ? Json(number) : Json(fmt::format("{}", number));
}

Json json_of(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const Tensor dense = to_compute_dtype(tensor.detach().contiguous());
  Json values = Json::array();
  const auto add = [&](const auto& numbers) {
    for (const double each : numbers) values.push_back(json_of(each));
  };
  dense.dtype() == DType::fp32 ? add(dense.values<float>()) : add(dense.values<double>());
  return {{"shape", dense.shape()}, {"values", std::move(values)}};
}

double number_of(const Json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

namespace {

// Element 5 of shape [2, 3] is "[1, 2]".
std::string index_text(std::size_t element, const Shape& shape) {
  Shape index(shape.size());
  auto rest = static_cast<std::int64_t>(element);
  for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace

std::string difference(const std::string& name, const Json& seen, const Json& expected) {
  if (seen.is_null() && expected.is_null()) return "";
  if (seen.is_null()) return name + " is missing";
  if (expected.is_null()) return name + " is given, but nobody needs it";
  const Shape shape = expected.at("shape");
  if (seen.at("shape") != expected.at("shape"))
    return fmt::format("{} has shape {}, expected {}", name, seen.at("shape").get<Shape>(), shape);
  for (std::size_t i = 0; i < expected.at("values").size(); ++i) {
    const double found = number_of(seen.at("values").at(i)),
                 wanted = number_of(expected.at("values")[i]);
    if (!(std::abs(found - wanted) <= 1e-9 * (1 + std::abs(wanted))))
      return fmt::format("{}{} is {:.6g}, expected {:.6g}", name,
                         shape.empty() ? "" : index_text(i, shape), found, wanted);
  }
  return "";
}

std::string first_difference(const std::vector<const char*>& names, const Json& seen,
                             const Json& expected) {
  for (const char* name : names)
    if (std::string says = difference(name, seen.at(name), expected.at(name)); !says.empty())
      return says;
  return "";
}

std::string fingerprint(const Tensor& tensor) {
  std::uint64_t bits = 0;
  for (const double each : tensor.values<double>())
    bits = mix_bits(bits ^ std::bit_cast<std::uint64_t>(each));
  return fmt::format("{:016x}", bits);
}

}  // namespace ringside::exercises

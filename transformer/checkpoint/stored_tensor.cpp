#include "transformer/checkpoint/stored_tensor.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "autograd/tensor/bf16.hpp"
#include "base/error.hpp"

namespace ringside::transformer {

using autograd::Bf16;
using autograd::Device;
using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;

namespace {

// IEEE 754 binary16: sign, 5 bits of exponent, 10 bits of fraction.
struct Fp16 {
  std::uint16_t bits;
  explicit operator float() const {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
    if (exponent == 31)
      return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                           : std::numeric_limits<float>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
    return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
};

// Converts stored numbers of one type to the tensor's type. Returns whether all are finite.
template <class Stored, class T>
bool convert(std::span<const std::byte> from, std::span<T> to) {
  bool finite = true;
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, from.data() + i * sizeof stored, sizeof stored);
    using Value = std::conditional_t<std::is_floating_point_v<Stored>, Stored, float>;
    const auto value = static_cast<Value>(stored);
    finite = finite && std::isfinite(value);
    to[i] = static_cast<T>(value);
  }
  return finite;
}

}  // namespace

StoredType stored_type(DType dtype) {
  constexpr std::array types{StoredType::f32, StoredType::f64, StoredType::i32, StoredType::bf16};
  return types.at(static_cast<std::size_t>(dtype));  // in the order of DType
}

ArrayView view_of(std::string name, const Tensor& tensor) {
  require(tensor.is_contiguous(),
          "the tensor '{}' is not contiguous: make it contiguous before it is written", name);
  require(tensor.device() == Device::cpu,
          "the tensor '{}' is on {}: copy it to the CPU before it is written", name,
          name_of(tensor.device()));
  const std::byte* start = tensor.address();
  const std::size_t bytes =
      static_cast<std::size_t>(tensor.elements()) * autograd::size_of(tensor.dtype());
  return {std::move(name), stored_type(tensor.dtype()), tensor.shape(), {start, bytes}};
}

void write_tensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors) {
  const autograd::NoGrad no_grad;
  std::vector<ArrayView> arrays;
  for (NamedTensor& each : tensors) {
    each.tensor = each.tensor.to(Device::cpu);
    arrays.push_back(view_of(each.name, each.tensor));
  }
  write_safetensors(path, arrays);
}

void read_tensor(SafetensorsFile& file, const std::string& name, const autograd::Region& region,
                 const Tensor& parameter) {
  const Tensor tensor = parameter.device() == Device::cpu
                            ? parameter
                            : Tensor::empty(parameter.shape(), parameter.dtype());
  const auto& entry = file.entry(name);
  require(entry.shape == region.whole, "'{}' has shape {} in the checkpoint but {} in the model",
          name, autograd::to_string(entry.shape), autograd::to_string(region.whole));
  const auto bytes_in = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * bytes_of(entry.type);
  };
  std::vector<std::byte> bytes(bytes_in(region.elements()));
  for (const auto& [in_whole, in_part, count] : region.runs())
    file.read_part(name, bytes_in(in_whole),
                   std::span(bytes).subspan(bytes_in(in_part), bytes_in(count)));
  autograd::dispatch_stored(tensor.dtype(), "read_tensor", [&]<class T>(T) {
    const std::span<T> values = tensor.values<T>();
    const auto all_finite = [&] {
      if (entry.type == StoredType::f32) return convert<float>(bytes, values);
      if (entry.type == StoredType::f64) return convert<double>(bytes, values);
      if (entry.type == StoredType::bf16) return convert<Bf16>(bytes, values);
      if (entry.type == StoredType::f16) return convert<Fp16>(bytes, values);
      fail("'{}' is stored as {}, but Ringside reads parameters from F32, F64, BF16 and F16", name,
           safetensors_name(entry.type));
    };
    require(all_finite(),
            "'{}' has values that are infinite or not a number: the run that saved it had diverged",
            name);
  });
  if (!tensor.is_same(parameter)) parameter.copy_(tensor);
}

}  // namespace ringside::transformer

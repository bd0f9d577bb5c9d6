// The types of a buffer's elements, and the operations that reduce two of them to one.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringside::collectives {

struct Fp16;  // half.hpp
struct Bf16;

enum class DataType : std::uint8_t {
  fp32,
  fp64,
  int32,
  int64,
  fp16,
  bf16,
  uint8,
  int8,
  int16,
  boolean
};
// Of booleans (0 or 1) a sum is "or", a product "and". avg divides the sum, which may overflow.
enum class ReduceOp : std::uint8_t { sum, product, min, max, avg, bit_and, bit_or, bit_xor };

std::size_t size_of(DataType type);  // bytes per element
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);
bool is_floating(DataType type);
bool is_bitwise(ReduceOp op);  // defined for types that are not floating

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> || std::same_as<T, Fp16> ||
    std::same_as<T, Bf16> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int8_t> ||
    std::same_as<T, std::int16_t> || std::same_as<T, bool>;

template <Element T>
constexpr DataType data_type_of() {
  if constexpr (std::same_as<T, float>) return DataType::fp32;
  if constexpr (std::same_as<T, double>) return DataType::fp64;
  if constexpr (std::same_as<T, std::int32_t>) return DataType::int32;
  if constexpr (std::same_as<T, std::int64_t>) return DataType::int64;
  if constexpr (std::same_as<T, Fp16>) return DataType::fp16;
  if constexpr (std::same_as<T, Bf16>) return DataType::bf16;
  if constexpr (std::same_as<T, std::uint8_t>) return DataType::uint8;
  if constexpr (std::same_as<T, std::int8_t>) return DataType::int8;
  if constexpr (std::same_as<T, std::int16_t>) return DataType::int16;
  if constexpr (std::same_as<T, bool>) return DataType::boolean;
}

}  // namespace ringside::collectives

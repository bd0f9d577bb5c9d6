// What the elements of a buffer are, and how two of them are reduced to one.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringside::collectives {

enum class DataType : std::uint8_t { fp32, fp64, int32, int64 };
enum class ReduceOp : std::uint8_t { sum, product, min, max, avg };

std::size_t size_of(DataType type);  // bytes per element
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

template <Element T>
constexpr DataType data_type_of() {
  if constexpr (std::same_as<T, float>) return DataType::fp32;
  if constexpr (std::same_as<T, double>) return DataType::fp64;
  if constexpr (std::same_as<T, std::int32_t>) return DataType::int32;
  return DataType::int64;
}

}  // namespace ringside::collectives

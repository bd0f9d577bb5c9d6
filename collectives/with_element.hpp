// From a DataType to the C++ type of its elements.
#pragma once

#include <cstdint>

#include "collectives/data_type.hpp"
#include "collectives/half.hpp"

namespace ringside::collectives {

// Calls body(T{}) with the C++ type of the elements; that of booleans is a byte, 0 or 1.
template <class Body>
void with_element(DataType type, Body body) {
  switch (type) {
    case DataType::fp32:
      return body(float{});
    case DataType::fp64:
      return body(double{});
    case DataType::int32:
      return body(std::int32_t{});
    case DataType::int64:
      return body(std::int64_t{});
    case DataType::fp16:
      return body(Fp16{});
    case DataType::bf16:
      return body(Bf16{});
    case DataType::uint8:
    case DataType::boolean:
      return body(std::uint8_t{});
    case DataType::int8:
      return body(std::int8_t{});
    case DataType::int16:
      return body(std::int16_t{});
  }
}

}  // namespace ringside::collectives

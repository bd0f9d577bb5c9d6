#include "collectives/data_type.hpp"

#include <iterator>

namespace ringside::collectives {
namespace {

struct TypeTraits {
  std::string_view name;
  std::size_t bytes = 0;
  bool floating = false;
};

// In the order of the enumerations.
constexpr TypeTraits types[] = {{"fp32", 4, true},   {"fp64", 8, true},  {"int32", 4, false},
                                {"int64", 8, false}, {"fp16", 2, true},  {"bf16", 2, true},
                                {"uint8", 1, false}, {"int8", 1, false}, {"int16", 2, false},
                                {"bool", 1, false}};
constexpr std::string_view ops[] = {"sum", "product", "min",    "max",
                                    "avg", "bit_and", "bit_or", "bit_xor"};

// A type in a call of another rank may have any number.
const TypeTraits& traits_of(DataType type) {
  static constexpr TypeTraits unknown{"unknown type"};
  const auto number = static_cast<std::size_t>(type);
  return number < std::size(types) ? types[number] : unknown;
}

}  // namespace

std::size_t size_of(DataType type) {
  return traits_of(type).bytes;
}
std::string_view name_of(DataType type) {
  return traits_of(type).name;
}
bool is_floating(DataType type) {
  return traits_of(type).floating;
}

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

std::string_view name_of(ReduceOp op) {
  const auto number = static_cast<std::size_t>(op);
  return number < std::size(ops) ? ops[number] : "unknown op";
}

}  // namespace ringside::collectives

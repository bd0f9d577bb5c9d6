#include "collectives/data_type.hpp"

namespace ringside::collectives {

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::uint8:
      return 1;
    case DataType::fp16:
    case DataType::bf16:
      return 2;
    case DataType::fp32:
    case DataType::int32:
      return 4;
    case DataType::fp64:
    case DataType::int64:
      return 8;
  }
  return 0;
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::fp32:
      return "fp32";
    case DataType::fp64:
      return "fp64";
    case DataType::int32:
      return "int32";
    case DataType::int64:
      return "int64";
    case DataType::fp16:
      return "fp16";
    case DataType::bf16:
      return "bf16";
    case DataType::uint8:
      return "uint8";
  }
  return "unknown type";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::product:
      return "product";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::avg:
      return "avg";
  }
  return "unknown op";
}

bool is_floating(DataType type) {
  return type == DataType::fp32 || type == DataType::fp64 || type == DataType::fp16 ||
         type == DataType::bf16;
}

}  // namespace ringside::collectives

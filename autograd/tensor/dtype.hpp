// Element types of tensors, and the one switch that turns a type known at run time into a template
// argument.
//
// Reading order of this folder, an afternoon in all: storage.hpp, tensor.hpp, node.hpp, engine.cpp
// (how gradients flow), then ops.hpp and any file of ops/ (forward and backward side by side),
// module.hpp, optimizer.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"

namespace ringside::autograd {

enum class DType : std::uint8_t {
  fp32,
  fp64,
  int32,  // token ids; it carries no gradient
  bf16,   // only kept, never computed in: see bf16.hpp
};

constexpr std::size_t size_of(DType type) {
  return type == DType::fp64 ? 8 : type == DType::bf16 ? 2 : 4;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::fp32:
      return "fp32";
    case DType::fp64:
      return "fp64";
    case DType::int32:
      return "int32";
    case DType::bf16:
      return "bf16";
  }
  return "unknown";
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::fp32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::fp64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::int32;
}

// Calls body(T{}) with T = float or double: `dispatch(x.dtype(), "silu", [&](auto zero) { using T =
// decltype(zero); ... })`. Throws Error naming the op for any other type.
template <class Body>
void dispatch(DType type, const char* op, Body&& body) {
  switch (type) {
    case DType::fp32:
      return body(float{});
    case DType::fp64:
      return body(double{});
    case DType::int32:
    case DType::bf16:
      break;
  }
  fail("{}: expected a tensor of fp32 or fp64, got {}", op, name_of(type));
}

}  // namespace ringside::autograd

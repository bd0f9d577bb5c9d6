// DType: the type of a tensor's elements. dispatch() turns a dtype known at run time into a
// template argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "autograd/tensor/bf16.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

enum class DType : std::uint8_t {
  fp32,
  fp64,
  int32,  // token ids; without gradient
  bf16,   // storage only: ops compute in fp32 (bf16.hpp)
};

constexpr std::size_t size_of(DType type) {
  return type == DType::fp64 ? 8 : type == DType::bf16 ? 2 : 4;
}

constexpr const char* name_of(DType type) {
  constexpr std::array names{"fp32", "fp64", "int32", "bf16"};
  return names.at(static_cast<std::size_t>(type));
}

// The inverse of name_of. Throws Error with the names that there are.
inline DType dtype_named(std::string_view name) {
  for (const DType type : {DType::fp32, DType::fp64, DType::int32, DType::bf16})
    if (name == name_of(type)) return type;
  fail("there is no dtype named '{}'; there are fp32, fp64, int32 and bf16", name);
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::fp32;
  if constexpr (std::is_same_v<T, double>) return DType::fp64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, Bf16>) return DType::bf16;
}

// The dtype in which ops compute on elements stored as `storage`: fp32 for bf16, otherwise the
// storage dtype itself.
constexpr DType compute_dtype(DType storage) {
  return storage == DType::bf16 ? DType::fp32 : storage;
}

// Calls body(T{}) with T = float or double, the compute dtypes:
//
//     dispatch(x.dtype(), "silu", [&]<class T>(T) { ... x.data<T>() ... });
//
// Throws Error naming the op for any other dtype.
template <class Body>
void dispatch(DType type, const char* op, Body&& body) {
  if (type == DType::fp32) return body(float{});
  if (type == DType::fp64) return body(double{});
  fail("{}: expected a tensor of fp32 or fp64, got {}", op, name_of(type));
}

// The same over storage dtypes: T may also be Bf16. For loops that only copy elements, and for
// loops that convert each element where they read or write it.
template <class Body>
void dispatch_stored(DType type, const char* op, Body&& body) {
  if (type == DType::bf16) return body(Bf16{});
  dispatch(type, op, body);
}

// The same over all dtypes: T may also be std::int32_t. For copies and fills.
template <class Body>
void dispatch_any(DType type, const char* op, Body&& body) {
  if (type == DType::int32) return body(std::int32_t{});
  dispatch_stored(type, op, body);
}

}  // namespace ringside::autograd

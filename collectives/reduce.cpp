#include "collectives/reduce.hpp"

#include <algorithm>
#include <type_traits>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

// Integers wrap around, as they do in NCCL and MPI: the sum is computed without a sign, where overflow is defined.
template <class T, class Op>
T wrapping(T a, T b, Op op) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(op(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return op(a, b);
  }
}

template <class T, class Op>
void combine_each(void* into, const void* ours, const void* theirs, std::size_t count, Op op) {
  T* out = static_cast<T*>(into);
  const T* a = static_cast<const T*>(ours);
  const T* b = static_cast<const T*>(theirs);
#pragma GCC ivdep  // `into` may be `ours`, element by element, and overlaps nothing else
  for (std::size_t i = 0; i < count; ++i) out[i] = op(a[i], b[i]);
}

template <class T>
void combine_type(ReduceOp op, void* into, const void* ours, const void* theirs, std::size_t count) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return combine_each<T>(into, ours, theirs, count, [](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
    case ReduceOp::product:
      return combine_each<T>(into, ours, theirs, count, [](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
    case ReduceOp::min:
      return combine_each<T>(into, ours, theirs, count, [](T a, T b) { return b < a ? b : a; });
    case ReduceOp::max:
      return combine_each<T>(into, ours, theirs, count, [](T a, T b) { return a < b ? b : a; });
  }
}

}  // namespace

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::fp32: case DataType::int32: return 4;
    case DataType::fp64: case DataType::int64: return 8;
  }
  return 0;
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::fp32: return "fp32";
    case DataType::fp64: return "fp64";
    case DataType::int32: return "int32";
    case DataType::int64: return "int64";
  }
  return "unknown type";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::product: return "product";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::avg: return "avg";
  }
  return "unknown op";
}

void combine(DataType type, ReduceOp op, void* into, const void* ours, const void* theirs, std::size_t count) {
  switch (type) {
    case DataType::fp32: return combine_type<float>(op, into, ours, theirs, count);
    case DataType::fp64: return combine_type<double>(op, into, ours, theirs, count);
    case DataType::int32: return combine_type<std::int32_t>(op, into, ours, theirs, count);
    case DataType::int64: return combine_type<std::int64_t>(op, into, ours, theirs, count);
  }
}

void scale_for_avg(DataType type, void* data, std::size_t count, int ranks) {
  const auto divide = [&]<class T>(T* values) {
    for (std::size_t i = 0; i < count; ++i) values[i] /= static_cast<T>(ranks);
  };
  switch (type) {
    case DataType::fp32: return divide(static_cast<float*>(data));
    case DataType::fp64: return divide(static_cast<double*>(data));
    default: fail("avg is not defined for {}: use sum, and divide where you know how to round", name_of(type));
  }
}

}  // namespace ringside::collectives

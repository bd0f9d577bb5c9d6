#include "collectives/execution/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "base/error.hpp"
#include "collectives/half.hpp"
#include "collectives/with_element.hpp"

namespace ringside::collectives {
namespace {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// The processor's a + b returns one of two NaNs, depending on their order: so a NaN is always
// replaced by the same one.
template <class T>
T one_nan(T x) {
  return x != x ? std::numeric_limits<T>::quiet_NaN() : x;
}

// Integers wrap around, as in NCCL and MPI: computed as unsigned, where overflow is defined, and in
// at least 32 bits: C++ would widen a shorter one to a signed number.
template <class T>
auto wrapping(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<std::make_unsigned_t<decltype(x * x)>>(x);
  else
    return x;
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return one_nan(static_cast<T>(wrapping(a) + wrapping(b)));
  }
};

struct Product {
  template <class T>
  T operator()(T a, T b) const {
    return one_nan(static_cast<T>(wrapping(a) * wrapping(b)));
  }
};

// If neither number is less, either they are equal or one is a NaN. The OR of their bits is then
// right: equal numbers keep their bits, -0 and +0 give -0, and with a NaN the result is a NaN.
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T both = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) | std::bit_cast<BitsOf<T>>(b));
      const T lesser = b < a ? b : both;
      return a < b ? a : lesser;
    } else {
      return b < a ? b : a;
    }
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return -Min()(-a, -b);
    else
      return a < b ? b : a;
  }
};

template <class T, class Op>
void combine_each(T* out, const T* a, const T* b, std::size_t count, Op op) {
// `out` may be `a`, and overlaps nothing else.
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) out[i] = op(a[i], b[i]);
}

// The 16 bits of the nearest bf16, in the upper half of the word. A NaN needs no special case,
// unlike in half.hpp: a NaN that these operations make of two bf16 has zeros in the lower half, so
// rounding up cannot turn it into an infinity.
inline std::uint32_t rounded_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
}

// Two bf16 fill a word of 32 bits. Each half, with zeros in place of the other, is an fp32, so no
// conversion is needed: twice as fast as a plain loop.
template <class Op>
void combine_each(Bf16* out, const Bf16* a, const Bf16* b, std::size_t count, Op op) {
  const auto upper = [](std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000u); };
  const auto lower = [](std::uint32_t word) { return std::bit_cast<float>(word << 16); };
#pragma omp simd
  for (std::size_t i = 0; i < count / 2; ++i) {
    std::uint32_t x, y;
    std::memcpy(&x, a + 2 * i, sizeof x);
    std::memcpy(&y, b + 2 * i, sizeof y);
    const std::uint32_t both =
        rounded_to_bf16(op(upper(x), upper(y))) | rounded_to_bf16(op(lower(x), lower(y))) >> 16;
    std::memcpy(out + 2 * i, &both, sizeof both);
  }
  for (std::size_t i = count / 2 * 2; i < count; ++i)
    out[i].bits = static_cast<std::uint16_t>(
        rounded_to_bf16(op(static_cast<float>(a[i]), static_cast<float>(b[i]))) >> 16);
}

void combine_one(Fp16& out, Fp16 a, Fp16 b, auto op) {
  out = Fp16(op(static_cast<float>(a), static_cast<float>(b)));
}

#ifdef __F16C__
// The processor converts eight fp16 at once, with the same bits as half.hpp.
template <class Op>
void combine_each(Fp16* out, const Fp16* a, const Fp16* b, std::size_t count, Op op) {
  const auto widen = [](const Fp16* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  };
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 x = widen(a + i);
    const __m256 y = widen(b + i);
    for (int k = 0; k < 8; ++k) x[k] = op(static_cast<float>(x[k]), static_cast<float>(y[k]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) combine_one(out[i], a[i], b[i], op);
}
#else
template <class Op>
void combine_each(Fp16* out, const Fp16* a, const Fp16* b, std::size_t count, Op op) {
  for (std::size_t i = 0; i < count; ++i) combine_one(out[i], a[i], b[i], op);
}
#endif

template <class T>
void combine_type(ReduceOp op, void* into, const void* ours, const void* theirs,
                  std::size_t count) {
  T* out = static_cast<T*>(into);
  const T* a = static_cast<const T*>(ours);
  const T* b = static_cast<const T*>(theirs);
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::bit_and) return combine_each(out, a, b, count, std::bit_and<T>());
    if (op == ReduceOp::bit_or) return combine_each(out, a, b, count, std::bit_or<T>());
    if (op == ReduceOp::bit_xor) return combine_each(out, a, b, count, std::bit_xor<T>());
  }
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return combine_each(out, a, b, count, Sum());
    case ReduceOp::product:
      return combine_each(out, a, b, count, Product());
    case ReduceOp::min:
      return combine_each(out, a, b, count, Min());
    case ReduceOp::max:
      return combine_each(out, a, b, count, Max());
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      fail("{} is not defined for numbers with a fraction", name_of(op));
  }
}

template <class T>
void divide(void* data, std::size_t count, int ranks) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  T* values = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = T(static_cast<Wide>(values[i]) / static_cast<Wide>(ranks));
}

}  // namespace

void combine(DataType type, ReduceOp op, void* into, const void* ours, const void* theirs,
             std::size_t count) {
  if (type == DataType::boolean && op == ReduceOp::sum) op = ReduceOp::max;
  if (type == DataType::boolean && op == ReduceOp::product) op = ReduceOp::min;
  with_element(type, [&]<class T>(T) { combine_type<T>(op, into, ours, theirs, count); });
}

void scale_for_avg(DataType type, void* data, std::size_t count, int ranks) {
  require(is_floating(type),
          "avg is not defined for {}: use sum, and divide where you know how to round",
          name_of(type));
  with_element(type, [&]<class T>(T) { divide<T>(data, count, ranks); });
}

}  // namespace ringside::collectives

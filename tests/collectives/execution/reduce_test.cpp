// The arithmetic of reductions, for each type: rounding, wrapping, and that a (op) b and b (op) a
// are the same bits.
#include "collectives/execution/reduce.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collectives/half.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                ReduceOp::avg};

template <class T>
std::vector<T> combined(ReduceOp op, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  combine(data_type_of<T>(), op, out.data(), a.data(), b.data(), a.size());
  return out;
}

template <class T>
T combined(ReduceOp op, T a, T b) {
  return combined(op, std::vector<T>{a}, std::vector<T>{b})[0];
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Checks all pairs of these bit patterns.
template <class T, class Bits>
void must_commute(const std::vector<Bits>& patterns) {
  std::vector<T> a, b;
  for (const Bits x : patterns)
    for (const Bits y : patterns) {
      a.push_back(std::bit_cast<T>(x));
      b.push_back(std::bit_cast<T>(y));
    }
  for (const ReduceOp op : all_ops) {
    CAPTURE(name_of(data_type_of<T>()));
    CAPTURE(name_of(op));
    CHECK(same_bits(combined(op, a, b), combined(op, b, a)));
  }
}

float spaced(std::uint64_t i) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(5, 0, i)));
}

// The value of the type that is nearest to `x`, found by bisection; in a tie the one whose last bit
// is 0.
template <class T>
std::uint16_t nearest(float x, float greatest, float unit_there) {
  const float magnitude = std::abs(x);
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (magnitude >= greatest + unit_there / 2)
    return static_cast<std::uint16_t>(sign | std::bit_cast<std::uint16_t>(T(INFINITY)));
  int low = 0, high = 0x7fff;  // magnitudes ascend with their bits
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    const float value = std::bit_cast<T>(static_cast<std::uint16_t>(middle));
    (value <= magnitude ? low : high) = middle;
  }
  const double below =
      magnitude - static_cast<double>(std::bit_cast<T>(static_cast<std::uint16_t>(low)));
  const double above =
      static_cast<double>(std::bit_cast<T>(static_cast<std::uint16_t>(low + 1))) - magnitude;
  const bool up = below > above || (below == above && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (low + (up ? 1 : 0)));
}

}  // namespace

TEST_CASE("every fp16 and bf16 survives the conversion to fp32 and back") {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(fp32_from_fp16(half))) REQUIRE(fp16_from_fp32(fp32_from_fp16(half)) == half);
    if (!std::isnan(fp32_from_bf16(half))) REQUIRE(bf16_from_fp32(fp32_from_bf16(half)) == half);
    REQUIRE(std::isnan(fp32_from_fp16(half)) ==
            std::isnan(fp32_from_fp16(fp16_from_fp32(fp32_from_fp16(half)))));
    REQUIRE(std::isnan(fp32_from_bf16(half)) ==
            std::isnan(fp32_from_bf16(bf16_from_fp32(fp32_from_bf16(half)))));
  }
  CHECK(fp32_from_fp16(0x3c00) == 1);
  CHECK(fp32_from_fp16(0x7bff) == 65504);
  CHECK(fp32_from_fp16(0x0001) == 0x1p-24f);
  CHECK(fp32_from_fp16(0xfc00) == -INFINITY);
  CHECK(fp32_from_bf16(0x3f80) == 1);
  CHECK(fp32_from_bf16(0x0001) == 0x1p-133f);
}

TEST_CASE("fp32 is rounded to the nearest value, and a tie to the even one") {
  CHECK(bf16_from_fp32(1 + 0x1p-8f) == 0x3f80);  // between 1 and 1 + 2^-7: down to the even one
  // Between 1 + 2^-7 and 1 + 2^-6: up to the even one.
  CHECK(bf16_from_fp32(1 + 0x3p-8f) == 0x3f82);
  CHECK(fp16_from_fp32(1 + 0x1p-11f) == 0x3c00);
  CHECK(fp16_from_fp32(1 + 0x3p-11f) == 0x3c02);
  CHECK(fp16_from_fp32(65519.9f) == 0x7bff);
  CHECK(fp16_from_fp32(65520.0f) == 0x7c00);
  CHECK(fp16_from_fp32(0x1p-25f) == 0);
  CHECK(bf16_from_fp32(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(std::isnan(fp32_from_bf16(bf16_from_fp32(std::bit_cast<float>(0x7fffffffu)))));
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const float x = spaced(i), small = std::ldexp(static_cast<float>(random_normal(6, 0, i)),
                                                  static_cast<int>(i % 45) - 28);
    if (!std::isnan(x)) REQUIRE(bf16_from_fp32(x) == nearest<Bf16>(x, 0x1.fep127f, 0x1p120f));
    REQUIRE(fp16_from_fp32(small) == nearest<Fp16>(small, 65504, 32));
  }
}

TEST_CASE("sums of fp16 and bf16 are computed in fp32 and rounded once, for any count") {
  for (std::size_t count = 0; count < 70; ++count) {
    std::vector<Fp16> a(count), b(count), sum(count);
    std::vector<Bf16> c(count), d(count), product(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = Fp16(static_cast<float>(random_normal(1, count, i)));
      b[i] = Fp16(static_cast<float>(random_normal(2, count, i)));
      c[i] = Bf16(static_cast<float>(random_normal(3, count, i)));
      d[i] = Bf16(static_cast<float>(random_normal(4, count, i)));
      sum[i] = Fp16(static_cast<float>(a[i]) + static_cast<float>(b[i]));
      product[i] = Bf16(static_cast<float>(c[i]) * static_cast<float>(d[i]));
    }
    REQUIRE(same_bits(combined(ReduceOp::sum, a, b), sum));
    REQUIRE(same_bits(combined(ReduceOp::product, c, d), product));
  }
}

TEST_CASE("the fast loops give the same bits as one element at a time, for every fp16 and bf16") {
  const auto check = []<class T>(T) {
    std::vector<T> all, others;
    for (int bits = 0; bits < 0x10000; ++bits) {
      all.push_back(std::bit_cast<T>(static_cast<std::uint16_t>(bits)));
      others.push_back(
          std::bit_cast<T>(static_cast<std::uint16_t>(random_below(0x10000, 9, 0, bits))));
    }
    for (const ReduceOp op : all_ops) {
      CAPTURE(name_of(op));
      const std::vector<T> fast = combined(op, all, others);
      for (std::size_t i = 0; i < all.size(); ++i)
        REQUIRE(fast[i].bits == combined(op, all[i], others[i]).bits);
    }
  };
  check(Fp16());
  check(Bf16());
}

TEST_CASE("a (op) b and b (op) a have the same bits, also for zeros, infinities and NaNs") {
  must_commute<float, std::uint32_t>({0, 0x80000000, 1, 0x80000001, 0x3f800000, 0xbf800000,
                                      0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000,
                                      0x7fc00123, 0x7f800001, 0xffabcdef});
  must_commute<double, std::uint64_t>({0, 0x8000000000000000, 1, 0x3ff0000000000000,
                                       0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000,
                                       0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000000123,
                                       0x7ff0000000000001});
  must_commute<Fp16, std::uint16_t>(
      {0, 0x8000, 1, 0x3c00, 0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7e12, 0x7c01});
  must_commute<Bf16, std::uint16_t>(
      {0, 0x8000, 1, 0x3f80, 0xbf80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7fc1, 0x7f81});
}

TEST_CASE("-0 is less than +0, and a NaN is never lost") {
  CHECK(std::signbit(combined(ReduceOp::min, 0.0f, -0.0f)));
  CHECK_FALSE(std::signbit(combined(ReduceOp::max, -0.0f, 0.0f)));
  for (const ReduceOp op : all_ops) {
    CHECK(std::isnan(combined(op, std::nanf(""), 1.0f)));
    CHECK(std::isnan(combined(op, 1.0, std::nan(""))));
    CHECK(std::isnan(static_cast<float>(combined(op, Bf16(1), Bf16(NAN)))));
  }
  CHECK(combined(ReduceOp::min, 2.0f, -3.0f) == -3);
  CHECK(combined(ReduceOp::max, -3.0f, 2.0f) == 2);
  CHECK(combined(ReduceOp::min, -INFINITY, 2.0f) == -INFINITY);
}

TEST_CASE("integers wrap around, and signed ones are compared with their sign") {
  CHECK(combined<std::uint8_t>(ReduceOp::sum, 200, 100) == 44);
  CHECK(combined<std::uint8_t>(ReduceOp::product, 20, 20) == 144);
  CHECK(combined<std::uint8_t>(ReduceOp::max, 200, 100) == 200);
  CHECK(combined<std::int32_t>(ReduceOp::min, -1, 1) == -1);
  CHECK(combined<std::int64_t>(ReduceOp::product, std::int64_t(1) << 62, 4) == 0);
}

TEST_CASE("avg divides once, in the type or in fp32") {
  Bf16 b(10);
  scale_for_avg(DataType::bf16, &b, 1, 3);
  CHECK(b.bits == Bf16(10.0f / 3).bits);
  Fp16 h = combined(ReduceOp::avg, Fp16(60000), Fp16(60000));
  scale_for_avg(DataType::fp16, &h, 1, 2);
  CHECK(h.bits == Fp16(INFINITY).bits);  // the sum of two has overflowed
  double d = 1;
  scale_for_avg(DataType::fp64, &d, 1, 3);
  CHECK(d == 1.0 / 3);
  std::uint8_t whole = 3;
  CHECK_THROWS_WITH_AS(
      scale_for_avg(DataType::uint8, &whole, 1, 3),
      "avg is not defined for uint8: use sum, and divide where you know how to round", Error);
}

TEST_CASE("short integers, booleans, and operations on bits") {
  CHECK(combined<std::int8_t>(ReduceOp::sum, 100, 100) == -56);
  CHECK(combined<std::int8_t>(ReduceOp::min, -1, 1) == -1);
  CHECK(combined<std::int16_t>(ReduceOp::product, -32768, -32768) == 0);
  CHECK(combined<std::int16_t>(ReduceOp::max, -2, 1) == 1);
  CHECK(combined<std::uint8_t>(ReduceOp::bit_and, 0b1100, 0b1010) == 0b1000);
  CHECK(combined<std::int16_t>(ReduceOp::bit_or, 0b1100, 0b1010) == 0b1110);
  CHECK(combined<std::int64_t>(ReduceOp::bit_xor, -1, 0b1010) == ~0b1010);
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      const auto of_bools = [&](ReduceOp op) {  // a std::vector<bool> has no addresses
        bool result = false;
        combine(DataType::boolean, op, &result, &a, &b, 1);
        return result;
      };
      CHECK(of_bools(ReduceOp::sum) == (a || b));
      CHECK(of_bools(ReduceOp::product) == (a && b));
      CHECK(of_bools(ReduceOp::bit_xor) == (a != b));
    }
  float x = 1;
  CHECK_THROWS_WITH_AS(combine(DataType::fp32, ReduceOp::bit_or, &x, &x, &x, 1),
                       "bit_or is not defined for numbers with a fraction", Error);
}

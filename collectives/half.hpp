// The two 16-bit floating-point types, as elements of a buffer.
//
//            sign  exponent  fraction    greatest      epsilon
//     fp16     1       5        10       65504         2^-10, about 0.001    IEEE 754 binary16
//     bf16     1       8         7       3.4e38        2^-7,  about 0.008    upper half of an fp32
//
// Epsilon is the distance from 1 to the next number. Sums are computed in fp32 and rounded once, to
// the nearest value, and to an even last bit in a tie. (Cutting off the low bits would make every
// number smaller, and a thousand sums would add up the error.)
//
// In a ring of p ranks a chunk is rounded at every hop, p-1 times in all, because 16 bits travel.
// The error grows with p, more slowly than p/2 units in the last place, because roundings go up as
// often as down. All ranks still hold the same bits: a sum is completed on one rank and copied, or
// added in the same order everywhere.
#pragma once

#include <bit>
#include <cstdint>

namespace ringside::collectives {

// The fp32 of the same value as the fp16 with these bits. Exact, also for subnormal numbers.
constexpr float fp32_from_fp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  // Exponent and fraction at their bits in fp32. The exponent's bias is still 15.
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  if (magnitude >= 0x7c00u << 13) {  // infinity, or NaN, which becomes a quiet NaN
    const std::uint32_t quiet = magnitude > 0x7c00u << 13 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | magnitude | quiet);
  }
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;  // from bias 15 to 127
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

constexpr std::uint16_t fp16_from_fp32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & 0x80000000u) >> 16;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and above rounds past the greatest number, 65504: infinity
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 the unit of fp16 is 2^-24, as that of fp32 is between 0.5 and 1: adding 0.5
    // rounds to this unit.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
           std::bit_cast<std::uint32_t>(0.5f);
  } else {
    // Half a unit, less one if the last bit is 0: then a tie rounds down.
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    half = (magnitude >> 13) - (112u << 10);
  }
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float fp32_from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

constexpr std::uint16_t bf16_from_fp32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  // Rounding up a NaN could give an infinity.
  const bool is_number = (bits & 0x7fffffffu) <= 0x7f800000u;
  return static_cast<std::uint16_t>((is_number ? rounded : bits | 0x400000u) >> 16);
}

struct Fp16 {
  std::uint16_t bits;
  Fp16() = default;
  constexpr explicit Fp16(float value) : bits(fp16_from_fp32(value)) {}
  constexpr operator float() const { return fp32_from_fp16(bits); }
};

struct Bf16 {
  std::uint16_t bits;
  Bf16() = default;
  constexpr explicit Bf16(float value) : bits(bf16_from_fp32(value)) {}
  constexpr operator float() const { return fp32_from_bf16(bits); }
};

}  // namespace ringside::collectives

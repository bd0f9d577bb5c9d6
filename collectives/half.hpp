// The two floating-point types of 16 bits, as elements of a buffer.
//
//            sign  exponent  fraction    greatest      1 + this is the next number after 1
//     fp16     1       5        10       65504         2^-10, about 0.001         IEEE 754 binary16
//     bf16     1       8         7       3.4e38        2^-7,  about 0.008         the upper half of an fp32
//
// Neither is for computing in: a sum is computed in fp32 and rounded once, to the nearest, and half
// way between two to the one whose last bit is 0. (Cutting the low bits off instead makes every
// number smaller, and a thousand sums later that shows.)
//
// In a ring of p ranks a chunk is rounded at every hop, p-1 times in all: what travels has 16 bits.
// The error grows with p, slower than p/2 units in the last place, since roundings go up as often
// as down. All ranks still hold the same bits: a sum is finished in one place, and copied from
// there, or is added up everywhere in the same order.
#pragma once

#include <bit>
#include <cstdint>

namespace ringside::collectives {

// fp32 from the bits of an fp16: every fp16, subnormal ones included, is an fp32 exactly.
constexpr float fp32_from_fp16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude =
      (half & 0x7fffu)
      << 13;  // exponent and fraction where fp32 has them; the exponent counts from -15
  if (magnitude >= 0x7c00u << 13) {  // infinity, or not a number, which is made a quiet one
    const std::uint32_t quiet = magnitude > 0x7c00u << 13 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | magnitude | quiet);
  }
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;  // from -15 to -127
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

constexpr std::uint16_t fp16_from_fp32(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & 0x80000000u) >> 16;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);  // not a number
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // 65520 and more is nearer to 65536, which there is not, than to 65504
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 an fp16 counts in units of 2^-24, as fp32 does between 0.5 and 1: adding 0.5
    // rounds to such a unit.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
           std::bit_cast<std::uint32_t>(0.5f);
  } else {
    magnitude +=
        0xfffu + (magnitude >> 13 &
                  1u);  // half a unit, less one where the last bit is 0: a tie then stays below
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
  const bool is_number =
      (bits & 0x7fffffffu) <= 0x7f800000u;  // adding could make an infinity of one that is not
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

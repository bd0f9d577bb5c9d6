// Ends a program with a sentence where the processor lacks what the compiler took for granted:
// cmake/RingsideOptions.cmake takes AVX2 for other machines, and for its own all that this one has.
// Else the first such instruction would end it by SIGILL.
#include "base/system/processor.hpp"

#ifndef __x86_64__
ringside::ProcessorFeatures ringside::processor_features() {
  return {};
}
#else
#include <cpuid.h>

// Not by __builtin_cpu_supports(), which says no to everything in a program that Zig has linked.
// Compiled for any x86-64, as its caller below.
[[gnu::target("arch=x86-64")]] ringside::ProcessorFeatures ringside::processor_features() {
  unsigned leaves, saved, a, b, c, d;
  __cpuid(0, leaves, b, c, d);
  __cpuid(1, a, b, c, d);
  if (leaves < 7 || !(c & bit_OSXSAVE)) return {};
  asm volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
  __cpuid_count(7, 0, a, b, c, d);
  ProcessorFeatures has{.avx2 = ymm && (b & bit_AVX2) != 0,
                        .avx512f = zmm && (b & bit_AVX512F) != 0,
                        .avx512vl = zmm && (b & bit_AVX512VL) != 0};
  if (a < 1) return has;  // the number of further parts of leaf 7
  __cpuid_count(7, 1, a, b, c, d);
  has.avx512bf16 = zmm && (a & bit_AVX512BF16) != 0;
  return has;
}
#endif

#if defined(__AVX512F__)
#define RINGSIDE_NEEDS "avx512f"  // as Linux names it
#define RINGSIDE_HAS avx512f
#elif defined(__AVX2__)
#define RINGSIDE_NEEDS "avx2"
#define RINGSIDE_HAS avx2
#endif

#ifdef RINGSIDE_NEEDS
#include <unistd.h>

// Called before the constructors of static objects, which have no such number. ringside_base tells
// the linker that every program needs it, since none calls it.
extern "C" [[gnu::constructor(101), gnu::target("arch=x86-64")]] void ringside_require_processor() {
  constexpr char sentence[] =
      "This program of Ringside was compiled for processors with " RINGSIDE_NEEDS
      ", which this one lacks: compile it on this machine (./demo), or use another machine.\n";
  if (ringside::processor_features().RINGSIDE_HAS) return;
  _exit(write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0 ? 2 : 1);
}
#else
extern "C" void ringside_require_processor() {}
#endif

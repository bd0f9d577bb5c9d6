// Ends a program with a sentence where the processor lacks what the compiler took for granted:
// cmake/RingsideOptions.cmake takes AVX2 for other machines, and for its own all that this one has.
// Else the first such instruction would end it by SIGILL.

#if defined(__x86_64__)
#include <cstring>

#include <unistd.h>

namespace {

[[noreturn, gnu::target("arch=x86-64")]] void refuse(const char* missing) {
  const char* sentence[] = {
      "This program of Ringside was compiled for processors with ", missing,
      ", which this one lacks: compile it on this machine (./demo), or use another machine.\n"};
  for (const char* part : sentence)
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  _exit(1);
}

}  // namespace

// Before the constructors of static objects, which have no such number. ringside_base tells the linker
// that every program needs this function, since none calls it.
extern "C" [[gnu::constructor(101), gnu::target("arch=x86-64")]] void ringside_require_processor() {
  __builtin_cpu_init();
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) refuse("AVX2");
#endif
#ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) refuse("FMA");
#endif
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) refuse("AVX-512");
#endif
}
#else
extern "C" void ringside_require_processor() {}
#endif

// Ends a program with a sentence where the processor lacks what the compiler took for granted:
// cmake/RingsideOptions.cmake takes AVX2 for other machines, and for its own all that this one has.
// Else the first such instruction would end it by SIGILL.
#include <unistd.h>

#if defined(__AVX512F__)
#define RINGSIDE_NEEDS "avx512f"  // as Linux names it
#elif defined(__AVX2__)
#define RINGSIDE_NEEDS "avx2"
#endif

#ifdef RINGSIDE_NEEDS
// Compiled for any x86-64, and called before the constructors of static objects, which have no such
// number. ringside_base tells the linker that every program needs it, since none calls it.
extern "C" [[gnu::constructor(101), gnu::target("arch=x86-64")]] void ringside_require_processor() {
  constexpr char sentence[] =
      "This program of Ringside was compiled for processors with " RINGSIDE_NEEDS
      ", which this one lacks: compile it on this machine (./demo), or use another machine.\n";
  __builtin_cpu_init();
  if (__builtin_cpu_supports(RINGSIDE_NEEDS)) return;
  _exit(write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0 ? 2 : 1);
}
#else
extern "C" void ringside_require_processor() {}
#endif

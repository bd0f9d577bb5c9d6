// A limit on address space (ulimit -v) under which a BLAS cannot be loaded. OpenBLAS reserves its
// buffers in a constructor, and where it gets none it tries again for ever: the program would hang
// before main(), without a word. So this check runs before the constructors of all libraries.
#include <cstddef>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// OpenBLAS reserves two buffers of 128 MiB when it is loaded.
constexpr std::size_t needed = std::size_t{272} << 20;

constexpr char sentence[] =
    "ringside: a limit on address space (ulimit -v) is too low: the BLAS would wait for memory for "
    "ever. Raise the limit (ulimit -v unlimited); --memory-limit refuses what does not fit\n";

// Nothing is initialised yet, so it makes system calls only, and is not instrumented by a
// sanitizer.
__attribute__((no_sanitize("address", "thread", "undefined"))) void check_address_space(int, char**,
                                                                                        char**) {
  void* const trial =
      ::mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (trial != MAP_FAILED) {
    ::munmap(trial, needed);
    return;
  }
  ::syscall(SYS_write, STDERR_FILENO, sentence, sizeof sentence - 1);
  ::syscall(SYS_exit_group, 1);
}

__attribute__((section(".preinit_array"),
               used)) void (*const before_libraries)(int, char**, char**) = check_address_space;

}  // namespace

// Memory that other processes can map: an anonymous file, which they open through /proc. It ends
// with the processes that map it, so a killed process leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

namespace ringside::standin {

// The content of an IPC handle.
struct FileHandle {
  std::int32_t process, descriptor;
  std::uint64_t bytes;
  std::int32_t device;
};
static_assert(sizeof(FileHandle) <= 64);

struct SharedFile {
  void* memory = nullptr;
  int descriptor = -1;

  static SharedFile make(std::size_t bytes) {
    SharedFile file;
    file.descriptor = ::memfd_create("cuda_standin", MFD_CLOEXEC);
    if (file.descriptor < 0 || ::ftruncate(file.descriptor, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("CUDA stand-in: cannot make a file in memory");
    file.memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0);
    if (file.memory == MAP_FAILED) throw std::runtime_error("CUDA stand-in: cannot map a file");
    return file;
  }

  // memory is nullptr if the process is gone or has closed the file. Keeps no descriptor.
  static SharedFile open(const FileHandle& handle) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.descriptor);
    const int descriptor = ::open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return {};
    void* const memory =
        ::mmap(nullptr, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    ::close(descriptor);
    return {memory == MAP_FAILED ? nullptr : memory, -1};
  }
};

}  // namespace ringside::standin

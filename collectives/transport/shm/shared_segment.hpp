// Memory that several processes of one host share.
//
// A segment is a file without a name (memfd_create), which other processes open through
// /proc/PID/fd of its creator. So nothing is left behind, whenever a process dies: the kernel frees
// the memory with the last process that maps it. The size of /dev/shm, 64 MB in a container by
// default, does not limit it. The processes must see each other in /proc: one host, one process-ID
// namespace, one user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/system/file_descriptor.hpp"

namespace ringside::collectives {

class SharedSegment {
 public:
  // How another process finds a segment.
  struct Handle {
    std::int32_t pid = 0;
    std::int32_t fd = -1;
    std::uint64_t bytes = 0;
  };

  SharedSegment() = default;

  // Creates a segment filled with zeros. A page of it takes memory once it is written. `who` begins
  // the sentence of an Error: "rank 0".
  static SharedSegment create(std::size_t bytes, const std::string& who);

  // Opens a segment of another process, which must keep it until open() has returned. Throws Error
  // if that fails.
  static SharedSegment open(const Handle& handle);

  SharedSegment(SharedSegment&& other) noexcept { swap(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept {
    SharedSegment old(std::move(other));
    swap(old);
    return *this;
  }
  ~SharedSegment();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  Handle handle() const;  // of a segment that this process created

 private:
  SharedSegment(FileDescriptor file, std::size_t bytes);
  void swap(SharedSegment& other) noexcept;

  FileDescriptor file_;  // the creator keeps it: the others open the segment through it
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ringside::collectives

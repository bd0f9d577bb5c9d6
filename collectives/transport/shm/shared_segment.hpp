// Memory that several processes of one host see.
//
// A segment is a file in /dev/shm that never has a name: it is made with O_TMPFILE, and other
// processes open it through its maker's /proc/PID/fd. So nothing can be left in /dev/shm whatever
// happens to whom and when: the kernel frees the memory with the last process that maps it. What it
// takes is that the processes see each other in /proc: one host, one process-ID namespace, one
// user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <sys/types.h>

namespace ringside::collectives {

class SharedSegment {
 public:
  // Where another process finds a segment.
  struct Handle {
    std::int32_t pid = 0;
    std::int32_t fd = -1;
    std::uint64_t bytes = 0;
  };

  SharedSegment() = default;

  // A new one, filled with zeros. All of its memory is claimed here, so that a lack of it is an
  // Error now, which says how much was needed and how much there is, and not a SIGBUS later.
  // `purpose` completes "rank 0 needs 4.2 MiB of shared memory ...".
  static SharedSegment create(std::size_t bytes, const std::string& who,
                              const std::string& purpose);

  // Another's, which must keep it until open() has returned. Throws Error where it cannot be
  // reached.
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
  Handle handle() const;  // of one that was created here

 private:
  SharedSegment(int fd, std::size_t bytes);
  void swap(SharedSegment& other) noexcept;

  int fd_ = -1;  // kept by the maker: it is how the others open it
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ringside::collectives

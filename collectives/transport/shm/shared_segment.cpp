#include "collectives/transport/shm/shared_segment.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/system/fork.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {
namespace {

double mebibytes(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

SharedSegment::SharedSegment(FileDescriptor file, std::size_t bytes)
    : file_(std::move(file)), size_(bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  require(data != MAP_FAILED, "{:.1f} MiB of shared memory cannot be mapped: {}", mebibytes(bytes),
          std::strerror(errno));
  ::madvise(data, bytes, MADV_DONTFORK);  // a child has no use for it, and would keep the memory
  data_ = static_cast<std::byte*>(data);
}

SharedSegment::~SharedSegment() {
  if (data_) ::munmap(data_, size_);
}

void SharedSegment::swap(SharedSegment& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

SharedSegment::Handle SharedSegment::handle() const {
  return {::getpid(), file_.get(), size_};
}

SharedSegment SharedSegment::create(std::size_t bytes, const std::string& who) {
  FileDescriptor file(::memfd_create("ringside messages", MFD_CLOEXEC));
  keep_from_children(file.get());
  if (!file.is_open()) check_open_files(errno, who);
  require(file.is_open() && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0,
          "{} cannot make {:.1f} MiB of shared memory (memfd_create): {}. Take another backend "
          "(--backend tcp)",
          who, mebibytes(bytes), std::strerror(errno));
  return SharedSegment(std::move(file), bytes);
}

SharedSegment SharedSegment::open(const Handle& handle) {
  const auto path = fmt::format("/proc/{}/fd/{}", handle.pid, handle.fd);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) check_open_files(errno, "it");
  require(file.is_open(),
          "the shared memory of process {} cannot be opened: {} ({}). The ranks must run as one "
          "user, in one container; otherwise take another backend (--backend tcp)",
          handle.pid, std::strerror(errno), path);
  struct stat seen {};
  const bool whole =
      ::fstat(file.get(), &seen) == 0 && static_cast<std::uint64_t>(seen.st_size) >= handle.bytes;
  require(whole, "the shared memory of process {} has {} bytes where {} were expected ({})",
          handle.pid, seen.st_size, handle.bytes, path);
  SharedSegment segment(std::move(file), handle.bytes);
  segment.file_.close();
  return segment;
}

}  // namespace ringside::collectives

#include "collectives/transport/shm/shared_segment.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {
namespace {

constexpr const char* folder = "/dev/shm";

double mebibytes(double bytes) {
  return bytes / (1 << 20);
}

struct statvfs space_in_folder() {
  struct statvfs space {};
  ::statvfs(folder, &space);
  return space;
}

[[noreturn]] void fail_for_space(std::size_t bytes, const std::string& who,
                                 const std::string& purpose) {
  const auto space = space_in_folder();
  const auto block = static_cast<double>(space.f_frsize);
  fail(
      "{} needs {:.1f} MiB of shared memory {}, but {} has {:.1f} MiB left of {:.1f} MiB: enlarge "
      "it (mount -o remount,size=1g {}; docker run --shm-size=1g), use fewer ranks, or take "
      "another backend (--backend tcp)",
      who, mebibytes(static_cast<double>(bytes)), purpose, folder,
      mebibytes(static_cast<double>(space.f_bavail) * block),
      mebibytes(static_cast<double>(space.f_blocks) * block), folder);
}

}  // namespace

std::uint64_t SharedSegment::capacity() {
  const auto space = space_in_folder();
  return std::uint64_t{space.f_blocks} * space.f_frsize;
}

SharedSegment::SharedSegment(FileDescriptor file, std::size_t bytes)
    : file_(std::move(file)), size_(bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  require(data != MAP_FAILED, "{:.1f} MiB of shared memory cannot be mapped: {}",
          mebibytes(static_cast<double>(bytes)), std::strerror(errno));
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

SharedSegment SharedSegment::create(std::size_t bytes, const std::string& who,
                                    const std::string& purpose) {
  FileDescriptor file(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file.is_open()) check_open_files(errno, who);
  require(file.is_open(),
          "{} cannot make shared memory in {}: {}. Is {} a tmpfs that this user may write? "
          "Otherwise take another backend (--backend tcp)",
          who, folder, std::strerror(errno), folder);
  int error = 0;
  while ((error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes))) == EINTR) {
  }
  if (error == ENOSPC) fail_for_space(bytes, who, purpose);
  require(error == 0, "{} cannot claim {:.1f} MiB of shared memory in {}: {}", who,
          mebibytes(static_cast<double>(bytes)), folder, std::strerror(error));
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

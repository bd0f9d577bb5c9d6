#include "base/atomic_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"

namespace ringside {
namespace {

// Makes a rename durable before the next one. Ignores errors: some file systems cannot sync a
// directory and do not need it.
void sync_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(path_.string() + fmt::format(".{}.part", ::getpid())) {
  file_ = std::fopen(temporary_.c_str(), "wb");
  require(file_ != nullptr, "cannot write {}: {}", path_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t written = std::fwrite(bytes.data(), 1, bytes.size(), file_);
  require(written == bytes.size(), "cannot write {}: {}", path_.string(), std::strerror(errno));
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::rewrite(std::uint64_t first, std::string_view text) {
  const bool there = ::fseeko(file_, static_cast<off_t>(first), SEEK_SET) == 0;
  require(there, "cannot write {}: {}", path_.string(), std::strerror(errno));
  write(text);
  ::fseeko(file_, 0, SEEK_END);
}

void AtomicFile::commit() {
  // Without fsync, a crash of the machine could keep the rename but lose the bytes.
  const bool kept = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  require(kept, "cannot write {}: {}", path_.string(), std::strerror(errno));
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (closed && std::rename(temporary_.c_str(), path_.c_str()) == 0) return sync_folder_of(path_);
  const int reason = errno;
  std::remove(temporary_.c_str());
  fail("cannot write {}: {}", path_.string(), std::strerror(reason));
}

}  // namespace ringside

#include "base/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/system/file_descriptor.hpp"

namespace ringside {

std::string read_file(const std::filesystem::path& path, std::string_view what) {
  auto bytes = read_if_possible(path);
  require(bytes.has_value(), "cannot read {}{}{}: {}", what, what.empty() ? "" : " ", path.string(),
          std::strerror(errno));
  return *std::move(bytes);
}

std::optional<std::string> read_if_possible(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file.is_open() || ::fstat(file.get(), &about) != 0) return std::nullopt;
  // One byte more than a regular file has, so that the second read() finds its end. The size of
  // other files is 0.
  std::string bytes(std::max<std::size_t>(static_cast<std::size_t>(about.st_size) + 1, 4096), '\0');
  for (std::size_t size = 0;;) {
    const ssize_t n = ::read(file.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    size += static_cast<std::size_t>(n);
    if (n == 0 || size == bytes.size()) bytes.resize(n == 0 ? size : 2 * size);
    if (n == 0) return bytes;
  }
}

}  // namespace ringside

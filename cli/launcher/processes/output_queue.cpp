#include "cli/launcher/processes/output_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>

#include <unistd.h>

namespace ringside::cli {

void OutputQueue::write_some() {
  // A writable pipe takes at least PIPE_BUF bytes. A piece ends with a whole line, so other
  // programs write to the same terminal between lines only.
  std::size_t size = std::min<std::size_t>(text_.size(), PIPE_BUF);
  if (size < text_.size()) {
    const auto line_end = text_.rfind('\n', size - 1);
    if (line_end != std::string::npos) size = line_end + 1;
  }
  if (broken_) return text_.clear();
  const ssize_t written = ::write(fd_, text_.data(), size);
  if (written >= 0) {
    text_.erase(0, static_cast<std::size_t>(written));
  } else if (errno != EINTR && errno != EAGAIN) {
    error_ = errno;
    give_up();
  }
}

void OutputQueue::give_up() {
  broken_ = true;
  text_.clear();
}

}  // namespace ringside::cli

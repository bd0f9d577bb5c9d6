// How wide a terminal is.
#pragma once

#include <optional>

#include <sys/ioctl.h>
#include <unistd.h>

namespace ringside::cli {

// The columns of the terminal behind a file descriptor; none if it is no terminal or does not say.
inline std::optional<int> terminal_columns(int fd) {
  winsize size{};
  if (isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace ringside::cli

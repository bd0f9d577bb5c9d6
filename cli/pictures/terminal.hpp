// How wide a terminal is, and whether to use colour.
#pragma once

#include <iostream>
#include <optional>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/environment.hpp"

namespace ringside::cli {

// The columns of the terminal behind a file descriptor; none if it is no terminal or does not say.
inline std::optional<int> terminal_columns(int fd) {
  winsize size{};
  if (isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

// Colour only on a terminal, and not if the user does not want it (https://no-color.org).
inline bool wants_colour() {
  return isatty(STDOUT_FILENO) && !environment("NO_COLOR") && environment("TERM") != "dumb";
}

// What a command works at, on a terminal: in a line that the next one replaces, and "" removes. A
// script reads what it read before.
inline void show_progress(const std::string& text) {
  if (isatty(STDERR_FILENO)) std::cerr << "\r\x1b[K" << text;
}

}  // namespace ringside::cli

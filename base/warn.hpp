// A warning on standard error.
#pragma once

#include <cstdio>
#include <utility>

#include <fmt/core.h>

namespace ringside {

// Prints a formatted sentence. It throws nothing where that cannot be written: a full disk must not
// end a job because of a warning.
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  std::fprintf(stderr, "ringside: %s\n", fmt::format(format, std::forward<Args>(args)...).c_str());
}

}  // namespace ringside

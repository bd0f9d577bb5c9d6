// How a command ends when it does not simply return (command.hpp).
#pragma once

#include <utility>

#include <fmt/core.h>

#include "base/error.hpp"

namespace ringside::cli {

// The arguments are wrong or contradict each other. main() prints the message and a hint at --help,
// and exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Throws UsageError with a formatted message if the arguments are wrong, as require() throws Error.
template <class... Args>
void refuse_if(bool wrong, fmt::format_string<Args...> format, Args&&... args) {
  if (wrong) throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// Everything has been printed already, by a rank or by the launcher. main() exits with `code`.
struct Exit {
  int code = 0;
};

}  // namespace ringside::cli

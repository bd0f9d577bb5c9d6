// How a command ends when it does not simply return (command.hpp).
#pragma once

#include "base/error.hpp"

namespace ringside::cli {

// The arguments are wrong or contradict each other. main() prints the message and a hint at --help,
// and exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Everything has been printed already, by a rank or by the launcher. main() exits with `code`.
struct Exit {
  int code = 0;
};

}  // namespace ringside::cli

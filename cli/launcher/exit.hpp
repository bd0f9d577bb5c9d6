// How a command ends when it does not simply return (command.hpp).
#pragma once

#include "base/usage_error.hpp"

namespace ringside::cli {

// Everything has been printed already, by a rank or by the launcher. main() exits with `code`.
struct Exit {
  int code = 0;
};

}  // namespace ringside::cli

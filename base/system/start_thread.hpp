// Starts a thread, or says why that is not possible.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace ringside {

// `purpose` completes "cannot start a thread for ...". Throws Error if the system has no resources
// for another thread.
template <class Function>
std::thread start_thread(std::string_view purpose, Function&& function) {
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    fail(
        "cannot start a thread for {}: {}; is a limit on threads (ulimit -u) or memory (ulimit -v) "
        "reached?",
        purpose, error.what());
  }
}

}  // namespace ringside

// UsageError: what a user asked for is wrong or contradicts itself.
#pragma once

#include <utility>

#include <fmt/core.h>

#include "base/error.hpp"

namespace ringside {

// A program whose arguments are wrong prints the message and a hint at --help, and exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Throws UsageError with a formatted message if what the user asked for is wrong.
template <class... Args>
void refuse_if(bool wrong, fmt::format_string<Args...> format, Args&&... args) {
  if (wrong) throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ringside

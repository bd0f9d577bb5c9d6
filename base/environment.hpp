// Environment variables, checked like any other input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ringside {

// The variable's value; nullopt if it is unset or empty.
std::optional<std::string> environment(const char* name);

// The variable as an integer; nullopt if it is unset or empty. Throws Error with its name if it is
// not an integer in [low, high].
std::optional<std::int64_t> integer_environment(const char* name, std::int64_t low,
                                                std::int64_t high);

}  // namespace ringside

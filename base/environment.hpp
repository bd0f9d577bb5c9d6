// Environment variables, read with the same care as any other input from outside.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ringside {

// The variable's value; nothing if it is unset or empty.
std::optional<std::string> environment(const char* name);

// The variable as an integer; nothing if unset or empty. Throws Error naming the variable if it is
// not a number in [low, high].
std::optional<std::int64_t> integer_environment(const char* name, std::int64_t low,
                                                std::int64_t high);

}  // namespace ringside

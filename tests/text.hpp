// Helpers for tests that compare text: messages, pages.
#pragma once

#include <string_view>

namespace ringside::tests {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace ringside::tests

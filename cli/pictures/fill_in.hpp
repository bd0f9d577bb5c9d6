// Pages are made of a file with places, {{data}}, into which texts are filled.
#pragma once

#include <string>

#include "base/error.hpp"
#include "base/json.hpp"

namespace ringside::cli {

// Replaces the place by the text. Throws Error if the page does not have it.
inline void fill_in(std::string& page, const std::string& place, const std::string& text) {
  const std::size_t at = page.find(place);
  require(at != std::string::npos, "the page has no place {}", place);
  page.replace(at, place.size(), text);
}

// Within a script element JSON may contain anything but an end tag.
inline std::string json_in_script(const Json& data) {
  std::string text = data.dump();
  for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos;)
    text.replace(at, 2, "<\\/");
  return text;
}

}  // namespace ringside::cli

// JSON from untrusted files, where the leniency of a parser is dangerous: of two equal keys it
// keeps one, and readers disagree which; and deeply nested brackets overflow the stack of any code
// that walks the result.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace ringside::transformer {

// Parses `text`. Throws Error if it is not JSON ("`what` is not JSON: the error is in line 1, at
// byte 7"), goes on after its end, repeats a key within an object, or is nested more than `deepest`
// levels deep.
Json parse_strictly(const std::string& text, std::string_view what, int deepest);

// A JSON value for an error message: quoted, in ASCII, at most 100 characters.
std::string shown(const Json& json);

}  // namespace ringside::transformer

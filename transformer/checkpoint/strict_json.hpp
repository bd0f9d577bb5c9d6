// JSON from outside, where the usual leniency is a hole: of two equal keys a parser keeps one, and
// readers disagree on which; and a text of opening brackets alone makes whoever walks through it
// recurse without end.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ringside::transformer {

// The text as JSON. Throws Error, "`what` is not JSON", if it is none, names a key twice within one
// object, or is nested deeper than `deepest`.
nlohmann::json parse_strictly(const std::string& text, std::string_view what, int deepest);

// A piece of it fit for a message on a terminal: quoted, in ASCII, and not without end.
std::string shown(const nlohmann::json& said);

}  // namespace ringside::transformer

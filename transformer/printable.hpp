// Bytes that a model made up, fit for a terminal.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ringside::transformer {

// The bytes as text: printable ASCII, newlines and tabs as they are, whole UTF-8 characters too;
// everything else, control characters and what a model that knows no UTF-8 yet produces, as \xNN.
// So no sample can move the cursor or ring the bell.
std::string printable(std::span<const std::uint8_t> bytes);

}  // namespace ringside::transformer

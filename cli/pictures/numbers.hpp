// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ringside::cli {

// "857", "23.4k", "1.2M": about three digits.
std::string with_unit(double number);

// "0:07", "12:34", "3:02:01": hours, minutes and seconds.
std::string duration_text(double seconds);

// Seconds in milliseconds: "12.34", from 100 ms on "123.4".
std::string in_ms(double seconds);

// "1 rank", "2 ranks", "8 micro-batches".
std::string counted(std::int64_t n, std::string_view thing);

// Parses "64KB" (64000 bytes) or "64KiB" (65536). The units are B, KB, MB, GB, TB and KiB, MiB,
// GiB, TiB. Throws Error.
std::uint64_t parse_bytes(const std::string& text);
std::string bytes_to_text(std::uint64_t bytes);  // "64 KB", "65536 B"
std::string size_text(double bytes);             // the same of the nearest whole number

}  // namespace ringside::cli

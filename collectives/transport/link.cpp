#include "collectives/transport/link.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace ringside::collectives {
namespace {

constexpr std::pair<std::string_view, double> rates[] = {
    {"tbps", 1e12}, {"gbps", 1e9}, {"mbps", 1e6}, {"kbps", 1e3}};
constexpr std::pair<std::string_view, double> times[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};

// Beyond these limits a single message could take longer than a rank's timeout.
constexpr double least_bits_per_second = 1e6, longest_latency = 10;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// A number followed by one of the units, in any case; nothing if the text has another form.
template <std::size_t N>
std::optional<double> with_unit(std::string_view text,
                                const std::pair<std::string_view, double> (&units)[N]) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string unit(trimmed(text.substr(static_cast<std::size_t>(end - text.data()))));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto& [name, scale] : units)
    if (unit == name) return number * scale;
  return std::nullopt;
}

// The value in the largest unit in which it is at least 1.
template <std::size_t N>
std::string in_unit(double value, const std::pair<const char*, double> (&units)[N]) {
  for (const auto& [name, scale] : units)
    if (value >= scale * (1 - 1e-12)) return fmt::format("{:.6g} {}", value / scale, name);
  return fmt::format("{:.6g} {}", value / units[N - 1].second, units[N - 1].first);
}

}  // namespace

Link parse_link(std::string_view text) {
  const auto comma = text.find(',');
  const auto bits = with_unit(text.substr(0, comma), rates);
  const auto latency = comma == std::string_view::npos ? std::optional(0.0)
                                                       : with_unit(text.substr(comma + 1), times);
  require(bits && latency,
          "'{}' is no link: 1Gbps,50us is one (10^9 bits per second, 50 microseconds on the way); "
          "rates are in Kbps, Mbps, Gbps or Tbps, latencies in ns, us, ms or s",
          text);
  require(
      *bits >= least_bits_per_second,
      "a link of {} is slower than 1 Mbps: a message could take longer than a rank waits for it",
      text);
  require(
      *latency <= longest_latency,
      "a link of {} is longer than {:.0f} s: a message could take longer than a rank waits for it",
      text, longest_latency);
  return {*bits / 8, Seconds(*latency)};
}

std::string to_text(const Link& link) {
  static constexpr std::pair<const char*, double> bits[] = {
      {"Tbps", 1e12}, {"Gbps", 1e9}, {"Mbps", 1e6}};
  static constexpr std::pair<const char*, double> seconds[] = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  return fmt::format("{}, {}", in_unit(link.bytes_per_second * 8, bits),
                     in_unit(link.latency.count(), seconds));
}

std::optional<Link> link_from_environment() {
  const auto text = environment("RINGSIDE_LINK");
  if (!text) return std::nullopt;
  try {
    return parse_link(*text);
  } catch (const Error& error) {
    fail("RINGSIDE_LINK: {}", error.what());
  }
}

}  // namespace ringside::collectives

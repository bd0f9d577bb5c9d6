#include "collectives/transport/link.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace ringside::collectives {
namespace {

struct Unit {
  std::string_view name;
  double value;
};
// The largest first.
constexpr Unit rates[] = {{"Tbps", 1e12}, {"Gbps", 1e9}, {"Mbps", 1e6}, {"Kbps", 1e3}};
constexpr Unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

// Beyond these limits a single message could take longer than a rank's timeout.
constexpr double least_bits_per_second = 1e6, longest_latency = 10;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

// A number followed by one of the units, in any case; nothing if the text has another form.
std::optional<double> with_unit(std::string_view text, std::span<const Unit> units) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  text = trimmed(text.substr(static_cast<std::size_t>(end - text.data())));
  for (const Unit& unit : units)
    if (equal_in_any_case(text, unit.name)) return number * unit.value;
  return std::nullopt;
}

// The value in the largest unit in which it is at least 1.
std::string in_unit(double value, std::span<const Unit> units) {
  const auto fits = [&](const Unit& unit) { return value >= unit.value * (1 - 1e-12); };
  const auto found = std::find_if(units.begin(), units.end() - 1, fits);
  return fmt::format("{:.6g} {}", value / found->value, found->name);
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
  return fmt::format("{}, {}", in_unit(link.bytes_per_second * 8, rates),
                     in_unit(link.latency.count(), times));
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

// The collectives that a piece of code starts, and what this rank sends for them.
#pragma once

#include <functional>

#include <fmt/format.h>

#include "base/trace/trace.hpp"
#include "collectives/execution/traffic.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// Runs body() and returns {"calls": ["all_reduce of fc1", ...], "sent": bytes of this rank}.
inline Json calls_of(World& world, const std::function<void()>& body) {
  Trace trace;
  const auto before = world.group().traffic().payload_bytes_sent;
  {
    const Trace::On on(trace);
    body();
  }
  Json calls = Json::array();
  for (const Trace::Span& span : trace.spans())
    if (span.kind == Trace::Kind::call) calls.push_back(span.name + " of " + span.about);
  return {{"calls", calls}, {"sent", world.group().traffic().payload_bytes_sent - before}};
}

// Compares with the calls that are expected: "made the calls a, b; expected a". "" if they are
// equal.
inline std::string difference_of_calls(const Json& seen, const std::vector<std::string>& expected) {
  const auto in_words = [](const std::vector<std::string>& calls) {
    return calls.empty() ? std::string("no call") : fmt::format("{}", fmt::join(calls, ", "));
  };
  const std::vector<std::string> calls = seen.at("calls");
  if (calls == expected) return "";
  return fmt::format("made {} calls ({}), expected {} ({})", calls.size(), in_words(calls),
                     expected.size(), in_words(expected));
}

}  // namespace ringside::exercises

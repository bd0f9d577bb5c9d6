#include "collectives/call.hpp"

#include <fmt/format.h>

#include "base/text/printable.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

Label::Label(std::string_view name) {
  constexpr std::string_view cut = "...";
  if (name.size() >= sizeof text) {
    const std::size_t kept = sizeof text - 1 - cut.size();
    cut.copy(text, cut.size());
    name.substr(name.size() - kept).copy(text + cut.size(), kept);
  } else {
    name.copy(text, name.size());
  }
}

std::string describe(const Call& call) {
  return describe(call, RankNames());
}

std::string describe(const Call& call, const RankNames& names) {
  // A call from another rank may hold any values: those without a name are shown as numbers.
  if (call.collective > Collective::point_to_point)
    return fmt::format("collective {} of {}", static_cast<int>(call.collective), call.count);
  const std::string label =
      call.label.view().empty() ? "" : fmt::format(" for {}", printable_line(call.label.view()));
  if (call.collective == Collective::point_to_point)
    return fmt::format("send/recv of {} {} from rank {} to rank {}{}", call.count,
                       name_of(call.type), names(call.root), names(call.peer), label);
  const Algorithm* const known = algorithm_numbered(call.algorithm);
  const auto algorithm =
      known ? std::string(known->name) : fmt::format("algorithm {}", call.algorithm);
  std::string text(name_of(call.collective));
  if (call.collective != Collective::barrier) {
    text += call.unequal && call.count == 0
                ? fmt::format(" of {}", name_of(call.type))
                : fmt::format(" of {} {}", call.count, name_of(call.type));
    if (call.unequal) text += " in unequal blocks";
    if (call.algorithm == Call::not_told) return text + label;
    const bool towards_root =
        call.collective == Collective::reduce || call.collective == Collective::gather;
    if (has_root(call.collective))
      text += fmt::format(" {} rank {}", towards_root ? "to" : "from", names(call.root));
    text += reduces(call.collective) ? fmt::format(" ({}, {})", name_of(call.reduce), algorithm)
                                     : fmt::format(" ({})", algorithm);
  }
  return text + label;
}

}  // namespace ringside::collectives

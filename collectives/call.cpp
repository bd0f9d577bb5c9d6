#include "collectives/call.hpp"

#include <bit>

#include "base/error.hpp"

namespace ringside::collectives {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian, and so must the machine be");

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

std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return shown;
}

std::string describe(const Call& call) {
  // What comes from another rank may be anything: a number that names nothing is told as a number.
  if (call.collective > Collective::point_to_point)
    return fmt::format("collective {} of {}", static_cast<int>(call.collective), call.count);
  const std::string label =
      call.label.view().empty() ? "" : fmt::format(" for {}", printable(call.label.view()));
  if (call.collective == Collective::point_to_point)
    return fmt::format("send/recv of {} {} from rank {} to rank {}{}", call.count,
                       name_of(call.type), call.root, call.peer, label);
  const auto& algorithms = all_algorithms();
  const auto algorithm = call.algorithm < algorithms.size()
                             ? std::string(algorithms[call.algorithm].name)
                             : fmt::format("algorithm {}", call.algorithm);
  std::string text(name_of(call.collective));
  if (call.collective != Collective::barrier) {
    text += fmt::format(" of {} {}", call.count, name_of(call.type));
    const bool towards_root =
        call.collective == Collective::reduce || call.collective == Collective::gather;
    if (has_root(call.collective))
      text += fmt::format(" {} rank {}", towards_root ? "to" : "from", call.root);
    text += reduces(call.collective) ? fmt::format(" ({}, {})", name_of(call.reduce), algorithm)
                                     : fmt::format(" ({})", algorithm);
  }
  return text + label;
}

namespace {
std::string disagreement(int self, std::uint64_t our_sequence, const Call& ours, int peer,
                         std::uint64_t their_sequence, const Call& theirs) {
  return fmt::format(
      "the ranks disagree: rank {} makes call #{}, {}, but rank {} makes call #{}, {}. Every rank "
      "must make the same calls in "
      "the same order",
      self, our_sequence, describe(ours), peer, their_sequence, describe(theirs));
}
}  // namespace

bool numbered_alike(const Call& a, const Call& b) {
  if (a.collective != Collective::point_to_point && b.collective != Collective::point_to_point)
    return true;
  return a.collective == b.collective && a.root == b.root && a.peer == b.peer;
}

void check_call(std::uint64_t sequence, const Call& ours, const Call& theirs, int self, int peer) {
  if (ours != theirs) throw Error(disagreement(self, sequence, ours, peer, sequence, theirs));
}

void check_message(const MessageHeader& expected, const MessageHeader& seen, int self, int peer) {
  if (seen == expected) return;
  require(seen.magic == expected.magic && seen.job == expected.job,
          "rank {} received bytes from rank {} that are not a message of this job: do two jobs "
          "share a port, or do the ranks run "
          "different versions?",
          self, peer);
  if (seen.sequence == expected.sequence)
    check_call(seen.sequence, expected.call, seen.call, self, peer);
  if (seen.sequence != expected.sequence)
    throw OutOfStep(
        disagreement(self, expected.sequence, expected.call, peer, seen.sequence, seen.call));
  fail(
      "rank {} expected step {} slice {} ({} bytes) of call #{}, {}, from rank {}, but received "
      "step {} slice {} ({} bytes): do the "
      "ranks run different versions or settings (RINGSIDE_SLICE_BYTES)?",
      self, expected.step, expected.slice, expected.bytes, expected.sequence,
      describe(expected.call), peer, seen.step, seen.slice, seen.bytes);
}

}  // namespace ringside::collectives

#include "collectives/diagnostics/control_channel.hpp"

#include <algorithm>
#include <fstream>

#include <unistd.h>

#include "base/text/printable.hpp"

namespace ringside::collectives {
namespace {

// Whether a debugger is attached to a process of this host. False for a process that this one
// cannot see.
bool has_debugger(std::int64_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  std::int64_t tracer = 0;
  for (std::string word; status >> word;)
    if (word == "TracerPid:") return status >> tracer && tracer != 0;
  return false;
}

}  // namespace

ControlChannel::ControlChannel(int rank, int size, std::vector<std::int64_t> processes)
    : rank_(rank), peers_(size), processes_(std::move(processes)) {
  processes_.resize(peers_.size());
  processes_[rank] = ::getpid();
}

std::optional<int> ControlChannel::rank_in_debugger() const {
  for (int r = 0; r < size(); ++r)
    if (processes_[r] != 0 && has_debugger(processes_[r])) return r;
  return std::nullopt;
}

void ControlChannel::listen(Seconds patience) {
  receive(patience);
  failure_.throw_if_any();
}

void ControlChannel::explain(int peer, const std::string& symptom) {
  const Deadline deadline = Deadline::after(Seconds(1));
  listen();
  while (!deadline.expired() && !peers_[peer].said_goodbye) listen(deadline.remaining());
  if (peers_[peer].said_goodbye)
    throw RankFailure(peer,
                      fmt::format("rank {} has left the group, and rank {} still waits for it",
                                  names_(peer), names_(rank_)));
  throw RankFailure(peer,
                    fmt::format("the connection to rank {} broke: {}", names_(peer), symptom));
}

void ControlChannel::abort(const RankFailure& cause) noexcept {
  gave_up_ = true;
  const ControlMessage message{
      .kind = ControlMessage::gave_up, .rank = cause.rank, .text = cause.cause};
  for (int r = 0; r < size(); ++r)
    if (r != rank_) send(r, message);
}

void ControlChannel::tell_position(const Position& mine) noexcept {
  peers_[rank_].position = mine;
  peers_[rank_].position.heard = Clock::now();
  send_with_history({.kind = ControlMessage::position,
                     .rank = mine.waiting_for,
                     .step = mine.step,
                     .sequence = mine.sequence,
                     .call = mine.call});
}

std::vector<Position> ControlChannel::positions(Seconds patience) {
  const auto is_recent = [](const Peer& peer) {
    return peer.said_goodbye || peer.position.recent();
  };
  const Deadline deadline = Deadline::after(patience);
  listen();
  while (!deadline.expired() && !std::all_of(peers_.begin(), peers_.end(), is_recent))
    listen(deadline.remaining());
  std::vector<Position> positions;
  for (const Peer& peer : peers_) {
    positions.push_back(peer.position);
    positions.back().left = peer.said_goodbye;
  }
  return positions;
}

void ControlChannel::say_goodbye() noexcept {
  if (!gave_up_) send_with_history({.kind = ControlMessage::goodbye});
}

void ControlChannel::accept(int r, const ControlMessage& message) {
  Peer& peer = peers_[r];
  if (message.kind == ControlMessage::gave_up) {
    peer.said_goodbye = true;
    const std::string cause = printable_line(message.text);
    failure_.keep(
        RankFailure(message.rank, fmt::format("{} (as rank {} tells)", cause, names_(r)), cause));
    return;
  }
  if (message.kind == ControlMessage::goodbye) peer.said_goodbye = true;
  if (message.kind == ControlMessage::position &&
      (message.rank < Position::connecting || message.rank >= size()))
    return note_failure(r, fmt::format("rank {} says that it waits for rank {} of {}", names_(r),
                                       message.rank, size()));
  Position& position = peer.position;
  if (!message.text.empty()) position.made = CallHistory::from_bytes(message.text);
  if (message.kind == ControlMessage::position)
    position = {message.sequence, message.call, message.step,
                message.rank,     Clock::now(), position.made};
}

void ControlChannel::lost(int peer) {
  if (!peers_[peer].said_goodbye)
    note_failure(peer,
                 fmt::format("rank {} is gone: its connection closed without a goodbye, as when a "
                             "process is killed or crashes",
                             names_(peer)));
}

void ControlChannel::note_failure(int peer, const std::string& sentence) {
  failure_.keep(RankFailure(peer, sentence));
}

// To every other rank. Adds the history where the peer has not been told the latest call.
void ControlChannel::send_with_history(ControlMessage message) noexcept {
  const std::string history = history_.bytes();
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    message.text = peers_[r].told_until != history_.last() ? history : "";
    if (send(r, message)) peers_[r].told_until = history_.last();
  }
}

}  // namespace ringside::collectives

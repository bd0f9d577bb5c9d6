#include "collectives/diagnostics/control_channel.hpp"

#include <unistd.h>

#include "base/printable.hpp"
#include "collectives/diagnostics/debugger.hpp"

namespace ringside::collectives {

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
  if (failure_) throw *failure_;
}

void ControlChannel::explain(int peer, const std::string& symptom) {
  const Deadline deadline = Deadline::after(Seconds(1));
  listen();
  while (!deadline.expired() && !peers_[peer].said_goodbye) listen(deadline.remaining());
  if (peers_[peer].said_goodbye)
    throw RankFailure(
        peer,
        fmt::format("rank {} has left the group, and rank {} still waits for it", peer, rank_));
  throw RankFailure(peer, fmt::format("the connection to rank {} broke: {}", peer, symptom));
}

void ControlChannel::abort(const RankFailure& cause) noexcept {
  gave_up_ = true;
  ControlMessage message;
  message.kind = ControlMessage::gave_up;
  message.rank = cause.rank;
  message.text = cause.cause;
  for (int r = 0; r < size(); ++r)
    if (r != rank_) send(r, message);
}

void ControlChannel::tell_position(const Position& mine) noexcept {
  peers_[rank_].position = mine;
  peers_[rank_].position.heard = Clock::now();
  ControlMessage message;
  message.kind = ControlMessage::position;
  message.rank = mine.waiting_for;
  message.step = mine.step;
  message.sequence = mine.sequence;
  message.call = mine.call;
  for (int r = 0; r < size(); ++r)
    if (r != rank_) send_with_history(r, message);
}

std::vector<Position> ControlChannel::positions(Seconds patience) {
  const auto current = [this] {
    std::vector<Position> all;
    for (const Peer& peer : peers_) all.push_back(peer.position);
    return all;
  };
  const Deadline deadline = Deadline::after(patience);
  listen();
  auto positions = current();
  while (!deadline.expired() && !all_recent(positions)) {
    listen(deadline.remaining());
    positions = current();
  }
  return positions;
}

void ControlChannel::say_goodbye() noexcept {
  if (gave_up_) return;
  for (int r = 0; r < size(); ++r)
    if (r != rank_) send_with_history(r, {.kind = ControlMessage::goodbye});
}

void ControlChannel::accept(int r, const ControlMessage& message) {
  Peer& peer = peers_[r];
  if (message.kind == ControlMessage::gave_up) {
    peer.said_goodbye = true;
    const std::string cause = printable_line(message.text);
    if (!failure_)
      failure_ = RankFailure(message.rank, fmt::format("{} (as rank {} tells)", cause, r), cause);
    return;
  }
  if (message.kind == ControlMessage::goodbye) peer.said_goodbye = true;
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
                             peer));
}

void ControlChannel::note_failure(int peer, const std::string& sentence) {
  if (!failure_) failure_ = RankFailure(peer, sentence);
}

// Adds the history where the peer has not been told the latest call.
void ControlChannel::send_with_history(int peer, ControlMessage message) noexcept {
  if (peers_[peer].told_until != history_.last()) message.text = history_.bytes();
  if (send(peer, message)) peers_[peer].told_until = history_.last();
}

}  // namespace ringside::collectives

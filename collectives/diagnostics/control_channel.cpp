#include "collectives/diagnostics/control_channel.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

#include <sys/select.h>
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
    : rank_(rank),
      peers_(size),
      processes_(std::move(processes)),
      board_(std::make_shared<WaitBoard>()) {
  processes_.resize(peers_.size());
  processes_[rank] = ::getpid();
  board_->channels.push_back(this);
}

void ControlChannel::join(const ControlChannel& other) {
  board_ = other.board_;
  const Lock lock(board_->mutex);
  board_->channels.push_back(this);
}

void ControlChannel::set_names(RankNames names) {
  const Lock lock(board_->mutex);
  names_ = std::move(names);
}

std::optional<std::string> ControlChannel::rank_in_debugger() const {
  const Lock lock(board_->mutex);
  for (const ControlChannel* channel : board_->channels)
    for (int r = 0; r < channel->size(); ++r)
      if (channel->processes_[r] != 0 && has_debugger(channel->processes_[r]))
        return channel->names_(r);
  return std::nullopt;
}

void ControlChannel::listen() {
  {
    const Lock lock(board_->mutex);
    for (ControlChannel* channel : board_->channels) channel->receive();
  }
  failure_.throw_if_any();
}

// Another thread may use another group meanwhile, so nothing waits with the mutex.
template <class Done>
void ControlChannel::listen_until(Done done, Seconds patience) {
  const Deadline deadline = Deadline::after(patience);
  for (;;) {
    listen();
    {
      const Lock lock(board_->mutex);
      if (done()) return;
    }
    if (deadline.expired()) return;
    timeval pause{.tv_sec = 0, .tv_usec = 10'000};
    ::select(0, nullptr, nullptr, nullptr, &pause);
  }
}

void ControlChannel::explain(int peer, const std::string& symptom) {
  const int in_job = names_.in_job(peer);
  listen_until([&] { return peers_[peer].said_goodbye || board_->told[in_job].failure; },
               Seconds(1));
  if (const auto failure = failure_of(in_job)) throw *failure;
  const Lock lock(board_->mutex);
  if (peers_[peer].said_goodbye)
    throw RankFailure(in_job,
                      fmt::format("rank {} has left the group, and rank {} still waits for it",
                                  names_(peer), names_(rank_)));
  throw RankFailure(in_job,
                    fmt::format("the connection to rank {} broke: {}", names_(peer), symptom));
}

void ControlChannel::abort(const RankFailure& cause) noexcept {
  const Lock lock(board_->mutex);
  gave_up_ = true;
  waiting_for_ = -1;
  for (ControlChannel* channel : board_->channels)
    channel->send_to_all(
        {.kind = channel == this ? ControlMessage::gave_up : ControlMessage::failed_elsewhere,
         .rank = cause.rank,
         .text = cause.cause});
}

void ControlChannel::tell_position(const Position& mine) noexcept {
  const Lock lock(board_->mutex);
  peers_[rank_].position = mine;
  peers_[rank_].position.heard = Clock::now();
  send_with_history({.kind = ControlMessage::position,
                     .rank = mine.waiting_for,
                     .step = mine.step,
                     .sequence = mine.sequence,
                     .call = mine.call});
  waiting_for_ = mine.connects() ? -1 : names_.in_job(mine.waiting_for);
  if (waiting_for_ >= 0) tell_waits();
}

void ControlChannel::end_wait() noexcept {
  const Lock lock(board_->mutex);
  waiting_for_ = -1;
}

// Of all that this rank has heard, what those need that wait for it.
void ControlChannel::tell_waits() noexcept {
  const int self = names_.in_job(rank_);
  std::vector<ToldWait> told;
  const auto add = [&](int rank, const std::set<int>& waits_for) {
    const auto& heard = board_->told[rank];
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(
        rank == self ? Clock::duration{} : Clock::now() - heard.at);
    for (const int each : waits_for)
      told.push_back({.rank = rank,
                      .waits_for = each,
                      .age_ms = static_cast<std::uint32_t>(age.count()),
                      .hops = rank == self ? 0 : heard.hops + 1,
                      .number = rank == self ? board_->told_by_this_rank : heard.number});
  };
  ++board_->told_by_this_rank;
  const auto waits = known_waits().reachable_from(self).waits();
  add(self, waits.at(self));
  for (const auto& [rank, waits_for] : waits)
    if (rank != self) add(rank, waits_for);
  told.resize(std::min(told.size(), longest_control_text / sizeof(ToldWait)));
  const ControlMessage message{.kind = ControlMessage::waits,
                               .text = std::string(reinterpret_cast<const char*>(told.data()),
                                                   told.size() * sizeof(ToldWait))};
  for (ControlChannel* channel : board_->channels) channel->send_to_all(message);
}

WaitGraph ControlChannel::waits() const {
  const Lock lock(board_->mutex);
  return known_waits();
}

WaitGraph ControlChannel::known_waits() const {
  WaitGraph graph;
  for (const ControlChannel* channel : board_->channels)
    if (channel->waiting_for_ >= 0)
      graph.add(channel->names_.in_job(channel->rank_), channel->waiting_for_);
  for (const auto& [rank, told] : board_->told)
    if (told.recent())
      for (const int each : told.waits_for) graph.add(rank, each);
  return graph;
}

std::optional<RankFailure> ControlChannel::failure_of(int rank_of_job) const {
  const Lock lock(board_->mutex);
  return board_->told[rank_of_job].failure;
}

std::vector<Position> ControlChannel::positions(Seconds patience) {
  std::vector<Position> positions;
  const auto all_recent = [&] {
    positions.clear();
    for (int r = 0; r < size(); ++r) {
      const auto& told = board_->told[names_.in_job(r)];
      positions.push_back(peers_[r].position);
      positions.back().left = peers_[r].said_goodbye;
      positions.back().elsewhere = !positions.back().recent() && (told.recent() || told.failure);
    }
    return std::ranges::all_of(positions, [](const Position& each) {
      return each.left || each.elsewhere || each.recent();
    });
  };
  listen_until(all_recent, patience);
  return positions;
}

void ControlChannel::leave() noexcept {
  const Lock lock(board_->mutex);
  if (!gave_up_) send_with_history({.kind = ControlMessage::goodbye});
  std::erase(board_->channels, this);
}

void ControlChannel::accept(int r, const ControlMessage& message) {
  Peer& peer = peers_[r];
  if (message.kind == ControlMessage::waits) return accept_waits(r, message.text);
  if (message.kind == ControlMessage::gave_up || message.kind == ControlMessage::failed_elsewhere)
    return accept_failure(r, message);
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

void ControlChannel::accept_failure(int r, const ControlMessage& message) {
  const std::string cause = printable_line(message.text);
  const RankFailure failure(message.rank, fmt::format("{} (as rank {} tells)", cause, names_(r)),
                            cause);
  auto& told = board_->told[names_.in_job(r)];
  told.failure = failure;
  told.failed_at = Clock::now();
  if (message.kind == ControlMessage::failed_elsewhere) return;
  peers_[r].said_goodbye = true;
  failure_.keep(failure);
}

void ControlChannel::accept_waits(int r, const std::string& text) {
  const int self = names_.in_job(rank_), sender = names_.in_job(r);
  std::vector<ToldWait> waits(text.size() / sizeof(ToldWait));
  std::memcpy(waits.data(), text.data(), waits.size() * sizeof(ToldWait));
  for (std::size_t i = 0, next; i < waits.size(); i = next) {
    const ToldWait& first = waits[i];
    WaitBoard::Told told{.at = Clock::now() - std::chrono::milliseconds(first.age_ms),
                         .hops = first.hops,
                         .number = first.number};
    for (next = i; next < waits.size() && waits[next].rank == first.rank; ++next)
      told.waits_for.push_back(waits[next].waits_for);
    auto& known = board_->told[first.rank];
    if (first.rank == self || told.number <= known.number) continue;
    // It does not wait any more for the rank that it told in this group.
    Position& position = peers_[r].position;
    if (first.rank == sender && !position.connects() &&
        std::ranges::find(told.waits_for, names_.in_job(position.waiting_for)) ==
            told.waits_for.end())
      position.heard = {};
    // Only a rank that has gone on since then tells a new wait. An old one may come on another way.
    if (first.hops > 0 || told.at - known.failed_at < Position::every) {
      told.failure = known.failure;
      told.failed_at = known.failed_at;
    }
    known = std::move(told);
  }
}

void ControlChannel::lost(int peer) {
  if (peers_[peer].said_goodbye) return;
  if (const auto& failure = board_->told[names_.in_job(peer)].failure)
    failure_.keep(*failure);
  else
    note_failure(peer,
                 fmt::format("rank {} is gone: its connection closed without a goodbye, as when a "
                             "process is killed or crashes",
                             names_(peer)));
}

void ControlChannel::note_failure(int peer, const std::string& sentence) {
  failure_.keep(RankFailure(names_.in_job(peer), sentence));
}

void ControlChannel::send_to_all(const ControlMessage& message) noexcept {
  for (int r = 0; r < size(); ++r)
    if (r != rank_) send(r, message);
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

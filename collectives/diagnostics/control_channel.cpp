#include "collectives/diagnostics/control_channel.hpp"

#include <array>
#include <cstring>

#include <poll.h>
#include <sys/epoll.h>
#include <boost/asio/buffer.hpp>

#include "base/printable.hpp"
#include "collectives/bootstrap/resources.hpp"

namespace ringside::collectives {

Lifeline::Lifeline(int rank, std::vector<std::optional<Socket>> sockets, const CallHistory& made)
    : rank_(rank), made_(made), news_(::epoll_create1(EPOLL_CLOEXEC)), positions_(sockets.size()) {
  if (news_.get() < 0) check_open_files(errno, fmt::format("rank {}", rank));
  require(news_.get() >= 0, "the kernel gives rank {} no epoll: {}", rank, std::strerror(errno));
  for (auto& socket : sockets) {
    if (socket) {
      socket->non_blocking(true);
      epoll_event event{.events = EPOLLIN, .data = {}};
      require(::epoll_ctl(news_.get(), EPOLL_CTL_ADD, socket->native_handle(), &event) == 0,
              "rank {} cannot watch its connections: {}", rank, std::strerror(errno));
    }
    peers_.emplace_back().socket = std::move(socket);
  }
}

Lifeline::~Lifeline() {
  if (gave_up_) return;
  for (Peer& peer : peers_) tell_calls(peer, News{});
}

void Lifeline::listen() {
  for (std::size_t r = 0; r < peers_.size(); ++r) hear(static_cast<int>(r));
  if (failure_) throw *failure_;
}

void Lifeline::explain(int peer, const std::string& symptom) {
  const Deadline deadline = Deadline::after(Seconds(1));
  while (!deadline.expired() && !peers_[peer].said_goodbye) listen_for(deadline.remaining_ms());
  if (peers_[peer].said_goodbye)
    throw RankFailure(
        peer,
        fmt::format("rank {} has left the group, and rank {} still waits for it", peer, rank_));
  throw RankFailure(peer, fmt::format("the connection to rank {} broke: {}", peer, symptom));
}

void Lifeline::give_up(const RankFailure& cause) noexcept {
  gave_up_ = true;
  News news;
  news.kind = News::gave_up;
  news.rank = cause.rank;
  news.text = cause.cause;
  for (Peer& peer : peers_) tell(peer, news);
}

void Lifeline::tell_position(const Position& mine) noexcept {
  positions_[rank_] = mine;
  positions_[rank_].heard = Clock::now();
  News news;
  news.kind = News::position;
  news.rank = mine.waiting_for;
  news.step = mine.step;
  news.sequence = mine.sequence;
  news.call = mine.call;
  for (Peer& peer : peers_) tell_calls(peer, news);
}

void Lifeline::listen_for(int milliseconds) {
  pollfd watched{news(), POLLIN, 0};
  if (::poll(&watched, 1, milliseconds) > 0) listen();
}

void Lifeline::hear(int r) {
  Peer& peer = peers_[r];
  std::array<char, 1024> bytes;
  while (peer.socket && !peer.closed) {
    boost::system::error_code error;
    const std::size_t n = peer.socket->read_some(boost::asio::buffer(bytes), error);
    if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) return;
    peer.news.feed({bytes.data(), n});
    take_news(r);
    if (!error) continue;
    peer.closed = true;
    ::epoll_ctl(news_.get(), EPOLL_CTL_DEL, peer.socket->native_handle(),
                nullptr);  // it would be news for ever
    if (!peer.said_goodbye && !failure_)
      failure_ = RankFailure(r, fmt::format("rank {} is gone: its connection closed without a "
                                            "goodbye, as when a process is killed or crashes",
                                            r));
  }
}

std::vector<Position> Lifeline::positions(Seconds patience) {
  const Deadline deadline = Deadline::after(patience);
  listen();
  while (!deadline.expired() && !all_recent(positions_)) listen_for(deadline.remaining_ms());
  return positions_;
}

void Lifeline::take_news(int r) {
  try {
    while (const auto news = peers_[r].news.next()) act_on(r, *news);
  } catch (const Error& nonsense) {
    if (!failure_) failure_ = RankFailure(r, fmt::format("rank {} sends {}", r, nonsense.what()));
  }
}

void Lifeline::act_on(int r, const News& news) {
  if (news.kind == News::gave_up) {
    peers_[r].said_goodbye = true;
    const std::string cause = printable_line(news.text);
    if (!failure_)
      failure_ = RankFailure(news.rank, fmt::format("{} (as rank {} tells)", cause, r), cause);
    return;
  }
  if (news.kind == News::goodbye) peers_[r].said_goodbye = true;
  Position& theirs = positions_[r];
  if (!news.text.empty()) theirs.made = CallHistory::from_bytes(news.text);
  if (news.kind == News::position)
    theirs = {news.sequence, news.call, news.step, news.rank, Clock::now(), theirs.made};
}

// With the calls that the peer has not been told of, if there are any.
void Lifeline::tell_calls(Peer& peer, News news) noexcept {
  if (peer.told != made_.last()) news.text = made_.bytes();
  tell(peer, news);
  if (peer.unsent.empty()) peer.told = made_.last();
}

// Never waits. Whoever is stopped for hours, in a debugger say, does not listen, and in the end the
// connection is full: then older positions are better forgotten than newer ones kept back.
void Lifeline::tell(Peer& peer, const News& news) noexcept {
  if (!peer.socket || peer.closed) return;
  if (peer.unsent.empty() || news.kind != News::position) peer.unsent += to_bytes(news);
  boost::system::error_code error;
  peer.unsent.erase(0, peer.socket->write_some(boost::asio::buffer(peer.unsent), error));
}

}  // namespace ringside::collectives

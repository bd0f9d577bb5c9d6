#include "collectives/lifeline.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <boost/asio/buffer.hpp>
#include <poll.h>
#include <sys/epoll.h>

namespace ringside::collectives {
namespace {

struct News {
  enum Kind : std::uint32_t { goodbye = 1, gave_up, position };
  static constexpr std::uint32_t expected_magic = 0x53574e52;  // "RNWS"
  static constexpr std::uint32_t longest_text = 4096;
  std::uint32_t magic = expected_magic;
  std::uint32_t kind = goodbye;
  std::int32_t rank = -1;  // the one to blame, or the one waited for
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  Call call;
  std::uint32_t text_bytes = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(News) == 96, "the layout is the wire format");

std::string wire(News news, const std::string& text = "") {
  const std::string cut = text.substr(0, News::longest_text);
  news.text_bytes = static_cast<std::uint32_t>(cut.size());
  return std::string(reinterpret_cast<const char*>(&news), sizeof news) + cut;
}

}  // namespace

Lifeline::Lifeline(int rank, std::vector<std::optional<Socket>> sockets)
    : rank_(rank), news_(::epoll_create1(EPOLL_CLOEXEC)), positions_(sockets.size()) {
  require(news_.get() >= 0, "the kernel gives rank {} no epoll: {}", rank, std::strerror(errno));
  for (auto& socket : sockets) {
    if (socket) {
      socket->non_blocking(true);
      epoll_event event{.events = EPOLLIN, .data = {}};
      require(::epoll_ctl(news_.get(), EPOLL_CTL_ADD, socket->native_handle(), &event) == 0, "rank {} cannot watch its connections: {}", rank,
              std::strerror(errno));
    }
    peers_.push_back({std::move(socket), {}, false, false});
  }
}

Lifeline::~Lifeline() {
  if (gave_up_) return;
  for (std::size_t r = 0; r < peers_.size(); ++r) tell(static_cast<int>(r), wire(News{}));
}

void Lifeline::listen() {
  for (std::size_t r = 0; r < peers_.size(); ++r) hear(static_cast<int>(r));
  if (failure_) throw *failure_;
}

void Lifeline::explain(int peer, const std::string& symptom) {
  const Deadline deadline = Deadline::after(Seconds(1));
  while (!deadline.expired() && !peers_[peer].said_goodbye) listen_for(deadline.remaining_ms());
  if (peers_[peer].said_goodbye)
    throw RankFailure(peer, fmt::format("rank {} has left the group, and rank {} still waits for it", peer, rank_));
  throw RankFailure(peer, fmt::format("the connection to rank {} broke: {}", peer, symptom));
}

void Lifeline::give_up(const RankFailure& cause) noexcept {
  gave_up_ = true;
  News news;
  news.kind = News::gave_up;
  news.rank = cause.rank;
  for (std::size_t r = 0; r < peers_.size(); ++r) tell(static_cast<int>(r), wire(news, cause.cause));
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
  for (std::size_t r = 0; r < peers_.size(); ++r) tell(static_cast<int>(r), wire(news));
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
    peer.unread.append(bytes.data(), n);
    take_news(r);
    if (!error) continue;
    peer.closed = true;
    ::epoll_ctl(news_.get(), EPOLL_CTL_DEL, peer.socket->native_handle(), nullptr);  // it would be news for ever
    if (!peer.said_goodbye && !failure_)
      failure_ = RankFailure(r, fmt::format("rank {} is gone: its connection closed without a goodbye, as when a process is killed or crashes", r));
  }
}

void Lifeline::take_news(int r) {
  Peer& peer = peers_[r];
  while (peer.unread.size() >= sizeof(News)) {
    News news;
    std::memcpy(&news, peer.unread.data(), sizeof news);
    if (news.magic != News::expected_magic || news.text_bytes > News::longest_text) {
      if (!failure_) failure_ = RankFailure(r, fmt::format("rank {} sends news that make no sense: do the ranks run different versions?", r));
      return peer.unread.clear();
    }
    if (peer.unread.size() < sizeof news + news.text_bytes) return;
    const std::string text = peer.unread.substr(sizeof news, news.text_bytes);
    peer.unread.erase(0, sizeof news + news.text_bytes);
    if (news.kind == News::goodbye) peer.said_goodbye = true;
    if (news.kind == News::gave_up) {
      peer.said_goodbye = true;
      if (!failure_) failure_ = RankFailure(news.rank, fmt::format("{} (as rank {} tells)", text, r), text);
    }
    if (news.kind == News::position) positions_[r] = {news.sequence, news.call, news.step, news.rank, Clock::now()};
  }
}

void Lifeline::tell(int r, const std::string& bytes) noexcept {
  Peer& peer = peers_[r];
  if (!peer.socket || peer.closed) return;
  boost::system::error_code error;
  peer.socket->write_some(boost::asio::buffer(bytes), error);  // short, on an idle connection: it fits, or the peer is gone
}

}  // namespace ringside::collectives

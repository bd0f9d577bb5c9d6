// The lifeline: a second connection between every two ranks, which carries no data, only news.
//
// It is how a rank learns, while it waits for somebody else, that a third has died: the connection
// closes. Whoever leaves in good order says goodbye first; whoever gives up tells why. So every
// survivor can name the first cause, not only the neighbour's silence.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <unistd.h>
#include <boost/asio/ip/tcp.hpp>

#include "collectives/diagnostics/control_message.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class Lifeline {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // sockets[r] leads to rank r; sockets[rank] is empty. `made` is what this rank has called; it
  // must outlive the lifeline.
  Lifeline(int rank, std::vector<std::optional<Socket>> sockets, const CallHistory& made);
  ~Lifeline();  // says goodbye, unless this rank has given up
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Takes in all news that have come. Throws RankFailure if a rank has died or given up.
  void listen();

  // Called because the data connection to `peer` broke: waits for the news that explains it, and
  // throws RankFailure in any case.
  [[noreturn]] void explain(int peer, const std::string& symptom);

  // Whether `peer` is known to have left in good order: for transports that no broken data
  // connection tells.
  bool has_left(int peer) const { return peers_[peer].said_goodbye; }

  void give_up(const RankFailure& cause) noexcept;
  void tell_position(const Position& mine) noexcept;  // to everybody
  // Where everybody stands, once all have told recently, or `patience` is over. Throws as listen().
  std::vector<Position> positions(Seconds patience);

  // What to poll for input: one descriptor, however many ranks there are.
  int news() const { return news_.get(); }

  // Sleeps until there are news, for so long at most; then listens.
  void listen_for(int milliseconds);

 private:
  struct Peer {
    std::optional<Socket> socket;
    NewsReader news;
    std::string unsent;  // what did not fit into the connection: the peer has not listened for long
    std::uint64_t told = 0;  // the last of our calls that it has been told of
    bool said_goodbye = false;
    bool closed = false;
  };

  // An epoll that watches all sockets: to poll them each by each would cost as much as to send a
  // small message.
  class Descriptor {
   public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() { ::close(fd_); }
    Descriptor(const Descriptor&) = delete;
    int get() const { return fd_; }

   private:
    int fd_;
  };

  void hear(int peer);
  void take_news(int peer);
  void act_on(int peer, const News& news);
  static void tell(Peer& peer, const News& news) noexcept;
  void tell_calls(Peer& peer, News news) noexcept;

  int rank_;
  const CallHistory& made_;
  Descriptor news_;
  std::vector<Peer> peers_;
  std::vector<Position> positions_;
  std::optional<RankFailure> failure_;  // the first that was heard of
  bool gave_up_ = false;
};

}  // namespace ringside::collectives

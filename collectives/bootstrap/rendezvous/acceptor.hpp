// Accepts connections and passes on those that belong to the job.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "base/clock.hpp"
#include "collectives/bootstrap/rendezvous/handshake.hpp"

namespace ringside::collectives {

// It works while the io_context of its socket runs, on any number of connections at a time. A
// connection that does not prove within `patience` that it has the job key is closed; the job goes
// on. When there are too many such connections, or no file descriptor is left for the next one, the
// oldest is closed.
class Acceptor {
 public:
  using Welcome = std::function<void(const Handshake&, boost::asio::ip::tcp::socket)>;

  static constexpr std::size_t most_candidates = 256;

  // `welcome` takes each connection that has proved the key.
  Acceptor(boost::asio::ip::tcp::acceptor acceptor, std::string job_key, std::string who,
           Welcome welcome, Seconds patience = Seconds(5));
  ~Acceptor();  // says how many connections it has turned away, if not all have had a line
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  struct Candidate;
  using CandidatePointer = std::shared_ptr<Candidate>;

  void accept();
  void read_handshake(const CandidatePointer& candidate);
  void read_proof(const CandidatePointer& candidate);
  void drop_oldest();
  // Without a reason, which a connection that sent nothing has not, there is no line.
  void turn_away(const CandidatePointer& candidate, const std::optional<std::string>& why);

  // `handler`, unless this acceptor has been destroyed by the time it is called.
  template <class Handler>
  auto while_alive(Handler handler) {
    return [alive = std::weak_ptr<bool>(alive_), handler](auto&&... results) {
      if (!alive.expired()) handler(std::forward<decltype(results)>(results)...);
    };
  }

  boost::asio::ip::tcp::acceptor acceptor_;
  const std::string job_key_;
  const std::string who_;  // "rank 2"
  Welcome welcome_;
  const Seconds patience_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<CandidatePointer> candidates_;  // the oldest first
  int turned_away_ = 0;
  int untold_ = 0;  // those of them without a line of their own
};

}  // namespace ringside::collectives

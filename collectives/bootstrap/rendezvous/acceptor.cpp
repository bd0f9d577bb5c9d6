#include "collectives/bootstrap/rendezvous/acceptor.hpp"

#include <array>
#include <cstdio>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// A connection whose handshake is not complete. `timer` closes it when the time is over.
struct Acceptor::Candidate {
  explicit Candidate(tcp::socket s) : socket(std::move(s)), timer(socket.get_executor()) {}
  tcp::socket socket;
  asio::steady_timer timer;
  Handshake handshake;
};

Acceptor::Acceptor(tcp::acceptor acceptor, Key key, int rank, Welcome welcome, Seconds patience)
    : acceptor_(std::move(acceptor)),
      key_(key),
      rank_(rank),
      welcome_(std::move(welcome)),
      patience_(patience) {
  accept();
}

void Acceptor::accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    check_open_files(error.value(), fmt::format("rank {}", rank_));
    if (!error) read_handshake(std::make_shared<Candidate>(std::move(socket)));
    accept();
  });
}

void Acceptor::read_handshake(const std::shared_ptr<Candidate>& candidate) {
  candidate->timer.expires_after(std::chrono::duration_cast<Clock::duration>(patience_));
  candidate->timer.async_wait([candidate](error_code error) {
    // If the handshake completed just before, its handler has moved the socket away.
    if (!error && candidate->socket.is_open()) candidate->socket.cancel();
  });
  asio::async_read(candidate->socket, asio::buffer(&candidate->handshake, sizeof(Handshake)),
                   [this, candidate](error_code error, std::size_t n) {
                     candidate->timer.cancel();
                     const Handshake& handshake = candidate->handshake;
                     if (error)
                       return turn_away(*candidate,
                                        fmt::format("it sent {} of the {} bytes of a handshake", n,
                                                    sizeof(Handshake)));
                     if (const auto reason = reason_to_turn_away(handshake, key_))
                       return turn_away(*candidate, *reason);
                     welcome_(handshake, std::move(candidate->socket));
                   });
}

void Acceptor::turn_away(Candidate& candidate, const std::string& why) {
  error_code error;
  const auto endpoint = candidate.socket.remote_endpoint(error);
  fmt::print(stderr, "ringside: rank {} turned away a connection from {}: {}\n", rank_,
             error ? "an unknown address" : to_text(endpoint), why);
  if (candidate.handshake.magic != Handshake::expected_magic) return;
  const Answer answer{.kind = Answer::refusal, .bytes = static_cast<std::uint32_t>(why.size())};
  asio::write(candidate.socket, std::array{asio::buffer(&answer, sizeof answer), asio::buffer(why)},
              error);
  candidate.socket.shutdown(tcp::socket::shutdown_send, error);
}

}  // namespace ringside::collectives

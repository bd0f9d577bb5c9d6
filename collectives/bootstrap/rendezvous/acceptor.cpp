#include "collectives/bootstrap/rendezvous/acceptor.hpp"

#include <cerrno>
#include <cstdio>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "base/system/fork.hpp"
#include "base/warn.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// A connection that has not yet proved the key. `timer` closes it when the time is over.
struct Acceptor::Candidate {
  explicit Candidate(tcp::socket s) : socket(std::move(s)), timer(socket.get_executor()) {
    error_code error;
    const auto endpoint = socket.remote_endpoint(error);
    from = error ? "an unknown address" : to_text(endpoint);
  }
  tcp::socket socket;
  asio::steady_timer timer;
  std::string from;
  Handshake handshake;
  Challenge challenge;
  Digest proof{};
};

Acceptor::Acceptor(tcp::acceptor acceptor, std::string job_key, std::string who, Welcome welcome,
                   Seconds patience)
    : acceptor_(std::move(acceptor)),
      job_key_(std::move(job_key)),
      who_(std::move(who)),
      welcome_(std::move(welcome)),
      patience_(patience) {
  accept();
}

Acceptor::~Acceptor() {
  if (untold_ > 0)
    warn("{} turned away {} connections that are not of this job", who_, turned_away_);
}

void Acceptor::accept() {
  acceptor_.async_accept(while_alive([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    keep_from_children(socket.native_handle());
    const bool no_descriptor = error.value() == EMFILE || error.value() == ENFILE;
    if (no_descriptor && candidates_.empty()) check_open_files(error.value(), who_);
    if (no_descriptor || candidates_.size() == most_candidates) drop_oldest();
    if (!error) read_handshake(std::make_shared<Candidate>(std::move(socket)));
    accept();
  }));
}

void Acceptor::read_handshake(const CandidatePointer& candidate) {
  candidates_.push_back(candidate);
  candidate->timer.expires_after(std::chrono::duration_cast<Clock::duration>(patience_));
  candidate->timer.async_wait([candidate](error_code error) {
    // If the proof arrived just before, its handler has moved the socket away.
    if (!error && candidate->socket.is_open()) candidate->socket.cancel();
  });
  asio::async_read(candidate->socket, asio::buffer(&candidate->handshake, sizeof(Handshake)),
                   while_alive([this, candidate](error_code error, std::size_t n) {
                     if (error && n == 0) return turn_away(candidate, std::nullopt);
                     if (error)
                       return turn_away(candidate,
                                        fmt::format("it sent {} of the {} bytes of a handshake", n,
                                                    sizeof(Handshake)));
                     if (const auto reason = reason_to_turn_away(candidate->handshake))
                       return turn_away(candidate, reason);
                     read_proof(candidate);
                   }));
}

// The challenge fits into the buffer of a new socket, so sending it does not block.
void Acceptor::read_proof(const CandidatePointer& candidate) {
  candidate->challenge = challenge_for(candidate->handshake, job_key_);
  error_code ignored;  // the read fails too
  asio::write(candidate->socket, asio::buffer(&candidate->challenge, sizeof(Challenge)), ignored);
  asio::async_read(
      candidate->socket, asio::buffer(candidate->proof),
      while_alive([this, candidate](error_code error, std::size_t) {
        const Handshake& handshake = candidate->handshake;
        if (error || !equal_in_constant_time(candidate->proof,
                                             proof_for(candidate->challenge, handshake, job_key_)))
          return turn_away(candidate, "it did not prove that it has the key of this job");
        if (std::erase(candidates_, candidate) == 0) return;  // dropped a moment ago
        candidate->timer.cancel();
        welcome_(handshake, std::move(candidate->socket));
      }));
}

void Acceptor::drop_oldest() {
  if (!candidates_.empty()) turn_away(candidates_.front(), std::nullopt);
}

void Acceptor::turn_away(const CandidatePointer& candidate, const std::optional<std::string>& why) {
  constexpr int most_lines = 3;
  const CandidatePointer kept = candidate;         // `candidate` may be an element of candidates_
  if (std::erase(candidates_, kept) == 0) return;  // dropped before
  ++turned_away_;
  if (why && turned_away_ - untold_ <= most_lines)
    std::fputs(
        fmt::format("ringside: {} turned away a connection from {}: {}\n", who_, kept->from, *why)
            .c_str(),
        stderr);
  else
    ++untold_;
  kept->timer.cancel();
  error_code ignored;
  kept->socket.close(ignored);
}

}  // namespace ringside::collectives

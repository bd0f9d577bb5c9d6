// Connections of a test to a rendezvous: those of a rank that is impatient, and those of strangers.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "collectives/bootstrap/rendezvous/handshake.hpp"
#include "tests/collectives/worlds.hpp"

namespace ringside::tests {

using namespace collectives;

inline RankInfo impatient(int rank, int size, std::uint16_t port) {
  RankInfo rank_info = rank_info_of(rank, size, port);
  rank_info.connect_timeout = Seconds(3);
  return rank_info;
}

// Connects to `port` without being a rank, and sends `bytes`. The connection stays open until the
// destructor.
class Stranger {
 public:
  Stranger(std::uint16_t port, const std::string& bytes) : socket_(io_) {
    boost::system::error_code error = boost::asio::error::not_connected;
    for (int i = 0; i < 200 && error; ++i) {
      socket_.close();
      socket_.connect({boost::asio::ip::address_v4::loopback(), port}, error);
      if (error) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    REQUIRE(!error);
    boost::asio::write(socket_, boost::asio::buffer(bytes), error);
  }

  // Answers the challenge as a rank with this key.
  void prove(const Handshake& sent, const std::string& job_key = "test") {
    Challenge challenge;
    boost::asio::read(socket_, boost::asio::buffer(&challenge, sizeof challenge));
    const Digest proof = proof_for(challenge, sent, job_key);
    boost::asio::write(socket_, boost::asio::buffer(proof));
  }

  boost::asio::ip::tcp::socket& socket() { return socket_; }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
};

template <class T>
std::string bytes_of(const T& words) {
  return std::string(reinterpret_cast<const char*>(&words), sizeof words);
}

}  // namespace ringside::tests

// Sockets with deadlines, for the time in which the ranks connect.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.hpp"

namespace ringside::collectives {

// Runs handlers until `done()`, or until the deadline. Returns whether it is done.
template <class Done>
bool run_until(boost::asio::io_context& io, const Deadline& deadline, Done done) {
  while (!done()) {
    if (deadline.expired()) return false;
    io.restart();
    const auto left = std::chrono::duration_cast<Clock::duration>(deadline.remaining());
    const auto handlers =
        io.run_one_for(std::max(left, Clock::duration(std::chrono::milliseconds(1))));
    // Without an operation under way, run_one_for() returns at once: this is no busy loop.
    if (handlers == 0 && io.stopped() && !done())
      boost::asio::steady_timer(io, std::chrono::milliseconds(5)).wait();
  }
  return true;
}

// Whether `address` is one of this host. An address of a network that is switched off is not.
bool is_of_this_host(boost::asio::io_context& io, const boost::asio::ip::address& address);

// All addresses of this host, IPv4 and IPv6.
boost::asio::ip::address everywhere(boost::asio::io_context& io);

// Listens at `endpoint`, for `at_once` connections at a time. Throws Error that says what to do.
// `who` is "rank 3".
boost::asio::ip::tcp::acceptor listen_at(boost::asio::io_context& io,
                                         const boost::asio::ip::tcp::endpoint& endpoint,
                                         const std::string& who, int at_once);

// Connects to the first of `endpoints` that accepts, and repeats with growing pauses until the
// deadline. Throws Error. `who` connects; `whom` begins the sentence about the other side. `hint`,
// unless empty, says why it may not be there: after two seconds on stderr, and in the error.
// `check` is called before each attempt: it may throw to end them.
boost::asio::ip::tcp::socket connect_to(
    boost::asio::io_context& io, const std::vector<boost::asio::ip::tcp::endpoint>& endpoints,
    const Deadline& deadline, const std::string& who, const std::string& whom,
    const std::string& hint, const std::function<void()>& check);

// How long a rank waits until it prints a hint about what it waits for.
constexpr Seconds time_to_hint{2};

// Sets the options of a connected socket that will carry data, according to its route. Between
// ranks of one host nothing is ever congested, and an algorithm meant for networks costs a third of
// the bandwidth (docs/performance.md). Such a socket gets the plainest congestion control, reno,
// which every kernel allows to every user; it keeps at most 256 KiB unsent, one slice, which stay
// warm in cache. On other routes the system's defaults stand.
void set_up_data_socket(boost::asio::ip::tcp::socket& socket);

// Reads exactly buffer.size() bytes. Returns the error, timed_out after the deadline, or none.
boost::system::error_code read_all(boost::asio::io_context& io,
                                   boost::asio::ip::tcp::socket& socket,
                                   boost::asio::mutable_buffer buffer, const Deadline& deadline);

}  // namespace ringside::collectives

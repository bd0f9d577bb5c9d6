// Strangers: connections of other jobs, of no job, and servers that claim to be rank 0.
#include "tests/collectives/bootstrap/rendezvous/strangers.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <latch>
#include <memory>
#include <thread>

#include <sys/mman.h>

#include "base/system/file_descriptor.hpp"
#include "collectives/bootstrap/rendezvous/acceptor.hpp"
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/bootstrap/rendezvous/sockets.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Accepts one connection, answers its handshake as a rank with this key, and returns once the proof
// has come, or the other side has left.
boost::asio::ip::tcp::socket accept_with_key(boost::asio::ip::tcp::acceptor& acceptor,
                                             const std::string& job_key) {
  auto socket = acceptor.accept();
  Handshake handshake;
  boost::asio::read(socket, boost::asio::buffer(&handshake, sizeof handshake));
  const Challenge challenge = challenge_for(handshake, job_key);
  boost::asio::write(socket, boost::asio::buffer(&challenge, sizeof challenge));
  Digest proof;
  boost::system::error_code error;
  boost::asio::read(socket, boost::asio::buffer(proof), error);
  if (!error) CHECK(proof == proof_for(challenge, handshake, job_key));
  return socket;
}

// What goes to stderr while `body` runs.
template <class Body>
std::string errors_of(const Body& body) {
  std::fflush(stderr);
  const FileDescriptor before(::dup(STDERR_FILENO)), file(::memfd_create("stderr", 0));
  ::dup2(file.get(), STDERR_FILENO);
  body();
  std::fflush(stderr);
  ::dup2(before.get(), STDERR_FILENO);
  std::string text(static_cast<std::size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  CHECK(::pread(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return text;
}

}  // namespace

TEST_CASE("a process with another job key is refused and the job goes on") {
  const auto port = free_port();
  std::latch refused(1);
  const auto outcomes = on_threads(3, [&](int i) {
    RankInfo rank_info = rank_info_of(i == 2 ? 1 : i, 2, port);
    if (i == 1) refused.wait();
    if (i < 2) return void(connect_mesh(rank_info));
    rank_info.job_key = "another job";
    try {
      connect_mesh(rank_info);
    } catch (const Error&) {
      refused.count_down();
      throw;
    }
    refused.count_down();
  });
  CHECK(outcomes[0] == "");
  CHECK(outcomes[1] == "");
  CHECK(outcomes[2] ==
        fmt::format("what listens at 127.0.0.1:{} did not prove to rank 1 that it has the key of "
                    "this job: it is not rank 0, or it has another RINGSIDE_JOB_KEY or another "
                    "version of Ringside",
                    port));
}

TEST_CASE("strangers are dropped while the ranks connect") {
  const auto port = free_port();
  std::vector<std::string> outcomes;
  std::latch strangers_came(1);
  std::thread job([&] {
    outcomes = on_threads(3, [&](int rank) {
      if (rank > 0) strangers_came.wait();
      ProcessGroup group = ProcessGroup::over("tcp", rank_info_of(rank, 3, port));
      std::vector<int> x = {1};
      group.all_reduce(std::span(x));
      require(x[0] == 3, "{}", x[0]);
    });
  });
  {
    const Stranger browser(port,
                           "GET / HTTP/1.1\r\nHost: ringside\r\nUser-Agent: a browser that is lost "
                           "and says a lot about itself, 104 bytes at least\r\n\r\n");
    const Stranger shy(port, "half");
    const Stranger silent(port, "");
    strangers_came.count_down();
    job.join();
  }
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE(
    "connections with the right key but an impossible handshake are dropped and the job goes on") {
  const auto port = free_port();
  Handshake member;
  member.size = 3;
  std::vector<Handshake> odd(5, member);
  odd[0].purpose = 77;
  odd[1].purpose = Handshake::data, odd[1].rank = 1000000;
  odd[2].purpose = Handshake::control, odd[2].rank = -1;
  odd[3].purpose = Handshake::data, odd[3].rank = 0;
  odd[4].version = 99;
  std::vector<std::string> outcomes;
  std::latch strangers_came(1);
  std::thread job([&] {
    outcomes = on_threads(3, [&](int rank) {
      if (rank > 0) strangers_came.wait();
      ProcessGroup group = ProcessGroup::over("tcp", rank_info_of(rank, 3, port));
      group.barrier();
    });
  });
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (const Handshake& handshake : odd) {
    strangers.push_back(std::make_unique<Stranger>(port, bytes_of(handshake)));
    if (handshake.version == Handshake::our_version) strangers.back()->prove(handshake);
  }
  strangers_came.count_down();
  job.join();
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE("a server without the key is not believed") {
  const Challenge wrong = challenge_for(Handshake{}, "another job");
  const std::string table = bytes_of(Answer{.bytes = 2 * sizeof(Address)});
  for (const std::string& bytes : std::vector<std::string>{
           "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "half", bytes_of(wrong),
           table + std::string(2 * sizeof(Address), 'x'),
           bytes_of(Answer{.kind = Answer::refusal, .bytes = 200}) + "half a refusal"}) {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    const auto port = acceptor.local_endpoint().port();
    const auto outcomes = on_threads(2, [&](int i) {
      if (i == 1) connect_mesh(rank_info_of(1, 2, port));
      if (i == 1) return;
      auto socket = acceptor.accept();
      boost::asio::write(socket, boost::asio::buffer(bytes));
      socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send);
      std::array<char, 500> more;
      boost::system::error_code ignored;
      const auto n = boost::asio::read(socket, boost::asio::buffer(more), ignored);
      CHECK(n == sizeof(Handshake));  // and no proof, from which the key might be guessed
    });
    CAPTURE(bytes);
    CHECK(outcomes[1] ==
          fmt::format("what listens at 127.0.0.1:{} did not prove to rank 1 that it has the key of "
                      "this job: it is not rank 0, or it has another RINGSIDE_JOB_KEY or another "
                      "version of Ringside",
                      port));
  }
}

TEST_CASE("a server without the key that answers nothing ends a rank at its deadline") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = acceptor.local_endpoint().port();
  RankInfo rank_info = rank_info_of(1, 2, port);
  rank_info.connect_timeout = Seconds(1);
  const auto expected = fmt::format(
      "rank 0 does not answer at 127.0.0.1:{} within 1 s: it hangs, or is not of this job", port);
  CHECK_THROWS_WITH_AS(connect_mesh(rank_info), expected.c_str(), Error);
}

TEST_CASE("a server that closes each connection is told apart from one that is not there") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  std::function<void()> accept = [&] {
    acceptor.async_accept([&](auto, const boost::asio::ip::tcp::socket&) { accept(); });
  };
  accept();
  std::thread server([&] { io.run(); });
  const auto port = acceptor.local_endpoint().port();
  RankInfo rank_info = rank_info_of(1, 2, port);
  rank_info.connect_timeout = Seconds(1);
  const auto expected = fmt::format(
      "rank 1 connects to 127.0.0.1:{} and is cut off: what listens there is not rank 0 of this "
      "job, or strangers connect to it faster than it can turn them away",
      port);
  CHECK_THROWS_WITH_AS(connect_mesh(rank_info), expected.c_str(), Error);
  io.stop();
  server.join();
}

TEST_CASE("an impossible answer of a rank 0 with the key cannot hang a rank or cost it memory") {
  const auto answer = [](std::uint32_t kind, std::uint32_t bytes) {
    return bytes_of(Answer{.kind = kind, .bytes = bytes});
  };
  const std::string gone = "rank 0 went away while the ranks were connecting (";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"half", gone},
      {answer(Answer::table, 0xffffffff), gone},
      {answer(Answer::refusal, 0xffffffff), gone},
      {answer(77, 4), gone},
      {answer(Answer::table, 10), gone},
      {answer(Answer::table, 10) + "0123456789", "rank 0 sent a table of 10 bytes for 2 ranks"},
      {answer(Answer::table, 2 * sizeof(Address)) + std::string(2 * sizeof(Address), '\x1b'),
       "a rank sent '\\x1b\\x1b\\x1b"},
      {answer(Answer::refusal, 9) + "not you\x1b[", "rank 0 refuses: not you\\x1b["},
  };
  for (const auto& [bytes, expected] : cases) {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    const auto port = acceptor.local_endpoint().port();
    const auto outcomes = on_threads(2, [&](int i) {
      if (i == 1) return void(connect_mesh(rank_info_of(1, 2, port)));
      auto socket = accept_with_key(acceptor, "test");
      boost::asio::write(socket, boost::asio::buffer(bytes));
      socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send);
      char more = 0;
      boost::system::error_code ignored;
      boost::asio::read(socket, boost::asio::buffer(&more, 1), ignored);  // until the rank leaves
    });
    CAPTURE(bytes);
    CAPTURE(outcomes[1]);
    CHECK(contains(outcomes[1], expected));
  }
}

TEST_CASE("half a refusal after the table ends a rank at its deadline") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = acceptor.local_endpoint().port();
  std::latch ended(1);
  const auto outcomes = on_threads(2, [&](int i) {
    if (i == 1) {
      RankInfo rank_info = rank_info_of(1, 2, port);
      rank_info.connect_timeout = Seconds(1);
      try {
        connect_mesh(rank_info);
      } catch (const Error&) {
        ended.count_down();
        throw;
      }
      return;
    }
    auto socket = accept_with_key(acceptor, "test");
    const std::vector<Address> table(2, address_of(acceptor.local_endpoint()));
    boost::asio::write(socket, boost::asio::buffer(bytes_of(Answer{.bytes = 2 * sizeof(Address)})));
    boost::asio::write(socket, boost::asio::buffer(table));
    boost::asio::write(
        socket,
        boost::asio::buffer(bytes_of(Answer{.kind = Answer::refusal, .bytes = 200}) + "half"));
    for (int n = 0; n < 2; ++n) accept_with_key(acceptor, "test");
    ended.wait();
  });
  CHECK(outcomes[1] == "rank 0 has not brought the ranks together within 6 s");
}

TEST_CASE("thousands of strangers cost one line and the job goes on") {
  std::vector<std::string> outcomes;
  const std::string errors = errors_of([&] {
    const auto port = free_port();
    std::latch strangers_came(1);
    std::thread job([&] {
      outcomes = on_threads(3, [&](int rank) {
        if (rank > 0) strangers_came.wait();
        ProcessGroup::over("tcp", rank_info_of(rank, 3, port)).barrier();
      });
    });
    for (int i = 0; i < 3000; ++i) {
      Stranger reset(port, "");
      reset.socket().set_option(boost::asio::socket_base::linger(true, 0));
    }
    strangers_came.count_down();
    job.join();
  });
  for (const auto& text : outcomes) CHECK(text == "");
  CHECK(contains(errors, "ringside: rank 0 turned away "));
  CHECK(contains(errors, " connections that are not of this job\n"));
  CHECK(std::count(errors.begin(), errors.end(), '\n') == 1);
}

// How ranks find each other, and their messages when they do not.
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <latch>
#include <thread>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/file_descriptor.hpp"
#include "base/listening_port.hpp"
#include "collectives/bootstrap/rendezvous/acceptor.hpp"
#include "collectives/bootstrap/rendezvous/handshake.hpp"
#include "collectives/bootstrap/rendezvous/sockets.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

RankInfo impatient(int rank, int size, std::uint16_t port) {
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

TEST_CASE("many ranks connect whatever the order in which they start") {
  const auto outcomes = [] {
    const auto port = free_port();
    return on_threads(9, [&](int i) {
      const int rank = 8 - i;
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 150 : (i % 3) * 20));
      ProcessGroup group = ProcessGroup::over("tcp", rank_info_of(rank, 9, port));
      std::vector<int> x = {rank};
      group.all_reduce(std::span(x));
      require(x[0] == 36, "{}", x[0]);
    });
  }();
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE("every rank that came names the ranks that did not") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int i) {
    connect_mesh(impatient(i == 2 ? 4 : i, 5, port));
  });  // ranks 2 and 3 stay away
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(
        contains(text, fmt::format("ranks 2, 3 of 5 never came to 127.0.0.1:{} within 3 s", port)));
  }
}

TEST_CASE("without rank 0 the others say that it is not there") {
  const auto port = free_port();
  const auto outcomes = on_threads(2, [&](int i) { connect_mesh(impatient(i + 1, 3, port)); });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, fmt::format("rank 0 is not there: it cannot be reached at 127.0.0.1:{} "
                                     "within 3 s (Connection refused)",
                                     port)));
  }
}

TEST_CASE("rank 0 says that its port is taken") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor other(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = other.local_endpoint().port();
  const auto expected = fmt::format(
      "rank 0 cannot listen on 127.0.0.1:{}: the port is taken. Choose another with MASTER_PORT "
      "(or --master-port)",
      port);
  CHECK_THROWS_WITH_AS(connect_mesh(impatient(0, 2, port)), expected.c_str(), Error);
}

TEST_CASE("a rank says that MASTER_ADDR is unknown") {
  RankInfo rank_info = impatient(1, 2, 29500);
  rank_info.master_address = "no-such-host.invalid";
  try {
    connect_mesh(rank_info);
    FAIL("no exception");
  } catch (const Error& error) {
    CHECK(
        contains(error.what(), "MASTER_ADDR=no-such-host.invalid is not a host that rank 1 knows"));
  }
}

TEST_CASE("every rank learns that the world sizes differ") {
  const auto port = free_port();
  const auto outcomes =
      on_threads(3, [&](int rank) { connect_mesh(rank_info_of(rank, rank == 2 ? 4 : 3, port)); });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text,
                   "the ranks disagree on the world size: rank 0 has WORLD_SIZE=3, but rank 2 has "
                   "WORLD_SIZE=4"));
  }
}

TEST_CASE("every rank learns that the backends differ") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    ProcessGroup::over(rank == 2 ? "shm" : "tcp", rank_info_of(rank, 3, port));
  });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text,
                   "the ranks have different backends: rank 0 has tcp, but rank 2 has shm. Start "
                   "every rank with the same --backend (or RINGSIDE_BACKEND)"));
  }
}

TEST_CASE("a rank that dies while others are still missing is named long before the deadline") {
  const auto port = free_port();
  Handshake rank_2;
  rank_2.rank = 2;
  rank_2.size = 4;
  std::vector<std::string> outcomes;
  std::thread job([&] {  // rank 3 never comes
    outcomes = on_threads(2, [&](int rank) { connect_mesh(rank_info_of(rank, 4, port)); });
  });
  {
    Stranger dying(port, bytes_of(rank_2));
    dying.prove(rank_2);
  }
  job.join();
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text,
                   "rank 2 came and is gone, before all ranks were connected: it was killed, or it "
                   "failed and says why"));
  }
}

TEST_CASE(
    "a rank that dies after it has the table is named by all others long before the deadline") {
  const auto port = free_port();
  const auto outcomes = on_threads(4, [&](int rank) {
    if (rank != 1) return void(connect_mesh(rank_info_of(rank, 4, port)));
    // Joins and reads the table, but connects with nobody. The others cannot reach it, or wait for
    // it, and rank 3 has all its connections but one.
    Handshake join;
    join.rank = 1;
    join.size = 4;
    join.listens_on = address_of({boost::asio::ip::address_v4::loopback(), free_port()});
    Stranger rank_1(port, bytes_of(join));
    rank_1.prove(join);
    std::array<char, sizeof(Answer) + 4 * sizeof(Address)> table;
    boost::asio::read(rank_1.socket(), boost::asio::buffer(table));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  CHECK(outcomes[1] == "");
  for (const int rank : {0, 2, 3}) {
    CAPTURE(outcomes[rank]);
    CHECK(contains(outcomes[rank], "rank 1 came and is gone, before all ranks were connected"));
  }
}

TEST_CASE("every rank learns that two processes have the same rank") {
  const auto port = free_port();
  const auto outcomes =
      on_threads(3, [&](int i) { connect_mesh(rank_info_of(i == 2 ? 1 : i, 3, port)); });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(
        text, "two processes say that they are rank 1: every process needs a RANK of its own"));
  }
}

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

TEST_CASE("nobody listens any more once the ranks are connected") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    ProcessGroup group = ProcessGroup::over("tcp", rank_info_of(rank, 3, port));
    std::vector<int> x(1000);
    for (int i = 0; i < 50; ++i) {
      group.all_reduce(std::span(x));
      if (rank != 0) continue;
      boost::asio::io_context io;
      boost::asio::ip::tcp::socket stranger(io);
      boost::system::error_code error;
      stranger.connect({boost::asio::ip::address_v4::loopback(), port}, error);
      require(error == boost::asio::error::connection_refused, "the stranger was accepted: {}",
              error.message());
    }
  });
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
  CHECK(outcomes[1] == "rank 0 has not brought the ranks together within 3 s");
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

TEST_CASE("idle connections beyond the limit of open files do not end a rank") {
#ifdef __SANITIZE_ADDRESS__
  fmt::print("SKIPPED: UndefinedBehaviorSanitizer needs file descriptors itself\n");
  return;
#endif
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor listening(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = listening.local_endpoint().port();
  int welcomed = 0;
  const Acceptor acceptor(std::move(listening), "test", 0,
                          [&](const Handshake&, boost::asio::ip::tcp::socket) { ++welcomed; });
  // The limit holds for the whole process, so the others are another one.
  const pid_t others = ::fork();
  if (others == 0) {
    std::deque<Stranger> idle;
    for (int i = 0; i < 300; ++i) idle.emplace_back(port, "");
    Stranger member(port, bytes_of(Handshake{}));
    member.prove(Handshake{});
    ::pause();
  }
  const int next = ::dup(0);
  ::close(next);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{static_cast<rlim_t>(next) + 20, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::string problem;
  try {
    run_until(io, Deadline::after(Seconds(4)), [&] { return welcomed == 1; });
  } catch (const Error& error) {
    problem = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::kill(others, SIGKILL);
  ::waitpid(others, nullptr, 0);
  CHECK(problem == "");
  CHECK(welcomed == 1);
}

TEST_CASE("rank 0 listens at the socket that it inherits and again in the next rendezvous") {
  const ListeningPort port;
  std::vector<std::string> outcomes;
  for (int rendezvous = 0; rendezvous < 2; ++rendezvous) {
    outcomes = on_threads(3, [&](int rank) {
      RankInfo rank_info = rank_info_of(rank, 3, static_cast<std::uint16_t>(port.number()));
      if (rank == 0) rank_info.listening = port.descriptor();
      ProcessGroup group = ProcessGroup::over("tcp", rank_info);
      group.barrier();
      if (rank > 0) return;
      boost::asio::io_context io;
      boost::asio::ip::tcp::socket stranger(io);
      boost::system::error_code error;
      stranger.connect({boost::asio::ip::address_v4::loopback(), rank_info.master_port}, error);
      require(error == boost::asio::error::connection_refused, "the stranger was accepted");
      // The port is still kept for this job.
      boost::asio::ip::tcp::acceptor thief(io);
      thief.open(boost::asio::ip::tcp::v4());
      thief.set_option(boost::asio::socket_base::reuse_address(true));
      thief.bind({boost::asio::ip::address_v4::loopback(), rank_info.master_port}, error);
      require(error == boost::asio::error::address_in_use, "a thief took the port");
    });
    for (const auto& text : outcomes) CHECK(text == "");
  }
}

TEST_CASE(
    "RINGSIDE_INTERFACE selects the network interface and an unknown name lists those that exist") {
  const auto port = free_port();
  const auto on_interface = [&](const char* name) {
    return on_threads(2, [&](int rank) {
      RankInfo rank_info = impatient(rank, 2, port);
      rank_info.interface = name;
      ProcessGroup::over("tcp", rank_info).barrier();
    });
  };
  for (const auto& text : on_interface("lo")) CHECK(text == "");
  const std::string sentence =
      "RINGSIDE_INTERFACE=lo7 is not a network interface of this host with an IPv4 address, as "
      "MASTER_ADDR has; there ";
  const auto wrong = on_interface("lo7");
  CAPTURE(wrong[0]);
  CHECK(contains(wrong[0], sentence));
  CHECK(contains(wrong[0], "lo (127.0.0.1)"));
}

TEST_CASE("a handshake that completes at the moment of its deadline is accepted") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor listening(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = listening.local_endpoint().port();
  int welcomed = 0;
  const Acceptor acceptor(
      std::move(listening), "test", 0,
      [&](const Handshake&, boost::asio::ip::tcp::socket) { ++welcomed; }, Seconds(1));
  const Handshake handshake;
  boost::asio::io_context client_io;
  boost::asio::ip::tcp::socket client(client_io);
  client.connect({boost::asio::ip::address_v4::loopback(), port});
  boost::asio::write(client, boost::asio::buffer(bytes_of(handshake)));
  run_until(io, Deadline::after(Seconds(0.02)), [] { return false; });  // accepts
  Challenge challenge;
  boost::asio::read(client, boost::asio::buffer(&challenge, sizeof challenge));
  // Nobody runs the handlers while the bytes arrive and the time runs out: both are ready at once.
  boost::asio::write(client, boost::asio::buffer(proof_for(challenge, handshake, "test")));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  CHECK_NOTHROW(run_until(io, Deadline::after(Seconds(0.1)), [] { return false; }));
  CHECK(welcomed == 1);
}

TEST_CASE("a lack of file descriptors is an Error wherever it strikes") {
#ifdef __SANITIZE_ADDRESS__
  // Without a free descriptor, the check of a virtual call reports every call.
  fmt::print("SKIPPED: UndefinedBehaviorSanitizer needs file descriptors itself\n");
  return;
#endif
  const auto with_no_descriptor_left = [](const auto& body) {
    const int next = ::dup(0);  // the lowest free descriptor
    ::close(next);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    std::string text;
    try {
      body();
    } catch (const Error& error) {
      text = error.what();
    } catch (const std::exception& other) {
      text = std::string("not an Error: ") + other.what();
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    return text;
  };
  const std::string sentence = "files and connections open, and needs two connections to every";
  const Address here = address_of({boost::asio::ip::address_v4::loopback(), 0});
  const auto rank_0 = impatient(0, 2, free_port());
  CHECK(contains(with_no_descriptor_left([&] { Listener listener(here); }), sentence));
  CHECK(contains(with_no_descriptor_left([&] { connect_mesh(rank_0); }), sentence));
}

// How ranks find each other, and their messages when they do not.
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"

#include <chrono>
#include <latch>
#include <thread>

#include <sys/resource.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

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

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
};

template <class T>
std::string bytes_of(const T& words) {
  return std::string(reinterpret_cast<const char*>(&words), sizeof words);
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
  rank_2.key = hash_of("test");
  rank_2.rank = 2;
  rank_2.size = 4;
  std::vector<std::string> outcomes;
  std::thread job([&] {  // rank 3 never comes
    outcomes = on_threads(2, [&](int rank) { connect_mesh(rank_info_of(rank, 4, port)); });
  });
  { const Stranger dying(port, bytes_of(rank_2)); }
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
    boost::asio::io_context io;
    Handshake join;
    join.key = hash_of("test");
    join.rank = 1;
    join.size = 4;
    join.listens_on = address_of({boost::asio::ip::address_v4::loopback(), free_port()});
    auto socket = connect_to(io, {{boost::asio::ip::address_v4::loopback(), port}},
                             Deadline::after(Seconds(20)), "rank 1", "rank 0", [] {});
    boost::asio::write(socket, boost::asio::buffer(&join, sizeof join));
    std::array<char, sizeof(Answer) + 4 * sizeof(Address)> table;
    boost::asio::read(socket, boost::asio::buffer(table));
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
  CHECK(contains(outcomes[2], "rank 0 refuses: its job key is not the key of this job"));
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
  member.key = hash_of("test");
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
  for (const Handshake& handshake : odd)
    strangers.push_back(std::make_unique<Stranger>(port, bytes_of(handshake)));
  strangers_came.count_down();
  job.join();
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE(
    "a server that is not rank 0 cannot make a rank wait for a length of its choice or reserve "
    "memory "
    "for it") {
  const auto answer = [](std::uint32_t kind, std::uint32_t bytes) {
    return bytes_of(Answer{.kind = kind, .bytes = bytes});
  };
  const std::string no_rank_0 =
      "what listens at 127.0.0.1:{} is not rank 0 of this job, or it has gone (";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", no_rank_0},
      {"half", no_rank_0},
      {answer(Answer::table, 0xffffffff), no_rank_0},
      {answer(Answer::refusal, 0xffffffff), no_rank_0},
      {answer(77, 4), no_rank_0},
      {answer(Answer::table, 10), "rank 0 went away while the ranks were connecting ("},
      {answer(Answer::table, 10) + "0123456789", "rank 0 sent a table of 10 bytes for 2 ranks"},
      {answer(Answer::table, 2 * sizeof(Address)) + std::string(2 * sizeof(Address), 'x'),
       "a rank sent 'xxx"},
      {answer(Answer::refusal, 9) + "not you\x1b[", "rank 0 refuses: not you\\x1b["},
  };
  for (const auto& [bytes, expected] : cases) {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    const auto port = acceptor.local_endpoint().port();
    const auto outcomes = on_threads(2, [&](int i) {
      if (i == 1) connect_mesh(rank_info_of(1, 2, port));
      if (i == 1) return;
      auto socket = acceptor.accept();
      boost::asio::write(socket, boost::asio::buffer(bytes));
      socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send);
      std::array<char, 96> handshake;
      boost::system::error_code ignored;
      boost::asio::read(socket, boost::asio::buffer(handshake),
                        ignored);  // otherwise the rank would see a reset
    });
    CAPTURE(bytes);
    CAPTURE(outcomes[1]);
    CHECK(contains(outcomes[1], fmt::format(fmt::runtime(expected), port)));
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
      std::move(listening), hash_of("test"), 0,
      [&](const Handshake&, boost::asio::ip::tcp::socket) { ++welcomed; }, Seconds(1));
  Handshake handshake;
  handshake.key = hash_of("test");
  const std::string bytes = bytes_of(handshake);
  boost::asio::io_context client_io;
  boost::asio::ip::tcp::socket client(client_io);
  client.connect({boost::asio::ip::address_v4::loopback(), port});
  run_until(io, Deadline::after(Seconds(0.02)), [] { return false; });  // accepts
  // Nobody runs the handlers while the bytes arrive and the time runs out: both are ready at once.
  boost::asio::write(client, boost::asio::buffer(bytes));
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

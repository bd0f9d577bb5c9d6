// How ranks find each other, and their messages when they do not.
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"

#include <array>
#include <chrono>
#include <thread>

#include "base/ports/listening_port.hpp"
#include "tests/collectives/bootstrap/rendezvous/strangers.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

TEST_CASE("a mesh knows the cores of all hosts, and whether its ranks have measured alike") {
  Mesh mesh;
  for (const std::uint64_t host : {7, 7, 9})
    mesh.addresses.push_back({.cores = host == 7 ? std::uint16_t{16} : std::uint16_t{4},
                              .costs = 1,
                              .process = 1,
                              .proc_domain = host});
  CHECK(mesh.cores() == 20);
  CHECK(mesh.have_equal_costs());
  mesh.addresses[1].costs = 2;
  CHECK_FALSE(mesh.have_equal_costs());
}

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

// The number is 127.0.0.1, but not by its text: it stands for a name that is a loopback address.
TEST_CASE("by a name that is a loopback address ranks come from all addresses of a host") {
  namespace ip = boost::asio::ip;
  for (const bool one_host : {false, true}) {
    const auto port = free_port();
    const auto outcomes = on_threads(4, [&](int rank) {
      RankInfo rank_info = rank_info_of(rank, 4, port);
      rank_info.master_address = rank == 3 ? "127.0.0.2" : "0x7f000001";
      rank_info.one_host = one_host;
      if (one_host && rank == 3) {  // stays out: rank 0 listens at 127.0.0.1 only
        boost::asio::io_context io;
        boost::system::error_code error;
        ip::tcp::socket socket(io);
        socket.connect({ip::make_address("127.0.0.2"), port}, error);
        CHECK(error == boost::asio::error::connection_refused);
        rank_info.master_address = "127.0.0.1";
      }
      const Mesh mesh = connect_mesh(rank_info);
      for (const Address& each : mesh.addresses)
        CHECK(endpoint_of(each).address() == ip::make_address("127.0.0.1"));
    });
    for (const auto& text : outcomes) CHECK(text == "");
  }
}

TEST_CASE("a stranger is turned away where rank 0 listens at all addresses") {
  const auto port = free_port();
  RankInfo rank_info = impatient(0, 2, port);
  rank_info.master_address = "0x7f000001";
  rank_info.one_host = false;
  std::string outcome;
  std::thread rank_0([&] {
    try {
      connect_mesh(rank_info);
    } catch (const Error& error) {
      outcome = error.what();
    }
  });
  Handshake rank_1;
  rank_1.rank = 1;
  rank_1.size = 2;
  { Stranger(port, bytes_of(rank_1)).prove(rank_1, "another key"); }
  rank_0.join();
  CHECK(outcome ==
        fmt::format("rank 1 of 2 never came to port {} of the host of rank 0 within 3 s", port));
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

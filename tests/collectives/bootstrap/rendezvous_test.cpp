// How ranks find each other, and what they say when they do not.
#include "collectives/bootstrap/rendezvous.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "collectives/bootstrap/handshake.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

RankInfo impatient(int rank, int size, std::uint16_t port) {
  RankInfo rank_info = place_of(rank, size, port);
  rank_info.connect_timeout = Seconds(1);
  return rank_info;
}

// Connects to `port` as somebody who is no rank, and sends `bytes`. The connection stays open until
// the socket is destroyed.
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

// Environment variables for the length of a test; all that a launcher might have set are cleared
// first.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "RINGSIDE_JOB_KEY",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMIX_NAMESPACE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "RINGSIDE_INTERFACE",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "SLURM_JOB_NODELIST"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
};

}  // namespace

TEST_CASE("a world of many ranks comes together whatever the order") {
  const auto outcomes = [] {
    const auto port = free_port();
    return on_threads(9, [&](int i) {
      const int rank = 8 - i;
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 150 : (i % 3) * 20));
      ProcessGroup group = ProcessGroup::over_tcp(place_of(rank, 9, port));
      std::vector<int> x = {rank};
      group.all_reduce(std::span(x));
      require(x[0] == 36, "{}", x[0]);
    });
  }();
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE("ranks that never come are named on every rank that did") {
  const auto port = free_port();
  const auto outcomes = on_threads(
      3, [&](int i) { meet(impatient(i == 2 ? 4 : i, 5, port)); });  // ranks 2 and 3 stay away
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(
        contains(text, fmt::format("ranks 2, 3 of 5 never came to 127.0.0.1:{} within 1 s", port)));
  }
}

TEST_CASE("without rank 0 the others say that it is not there") {
  const auto port = free_port();
  const auto outcomes = on_threads(2, [&](int i) { meet(impatient(i + 1, 3, port)); });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, fmt::format("rank 0 is not there: it cannot be reached at 127.0.0.1:{} "
                                     "within 1 s (Connection refused)",
                                     port)));
  }
}

TEST_CASE("a port that is taken is said to be taken") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor other(io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto port = other.local_endpoint().port();
  const auto expected = fmt::format(
      "rank 0 cannot listen on 127.0.0.1:{}: the port is taken. Choose another with MASTER_PORT "
      "(or --master-port)",
      port);
  CHECK_THROWS_WITH_AS(meet(impatient(0, 2, port)), expected.c_str(), Error);
}

TEST_CASE("a master address that nobody knows is said to be unknown") {
  RankInfo rank_info = impatient(1, 2, 29500);
  rank_info.master_address = "no-such-host.invalid";
  try {
    meet(rank_info);
    FAIL("it must throw");
  } catch (const Error& error) {
    CHECK(
        contains(error.what(), "MASTER_ADDR=no-such-host.invalid is not a host that rank 1 knows"));
  }
}

TEST_CASE("a wrong world size is told to every rank") {
  const auto port = free_port();
  const auto outcomes =
      on_threads(3, [&](int rank) { meet(place_of(rank, rank == 2 ? 4 : 3, port)); });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text,
                   "the ranks disagree on how many they are: rank 0 has WORLD_SIZE=3, but rank 2 "
                   "has WORLD_SIZE=4"));
  }
}

TEST_CASE("two processes with one rank are told so") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int i) { meet(place_of(i == 2 ? 1 : i, 3, port)); });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(
        text, "two processes say that they are rank 1: every process needs a RANK of its own"));
  }
}

TEST_CASE("a wrong job key is refused and the job goes on without it") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int i) {
    RankInfo rank_info = place_of(i == 2 ? 1 : i, 2, port);
    if (i == 2) {
      rank_info.job_key = "another job";
      rank_info.connect_timeout = Seconds(5);
    }
    if (i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    meet(rank_info);
  });
  CHECK(outcomes[0] == "");
  CHECK(outcomes[1] == "");
  CHECK(contains(outcomes[2], "rank 0 refuses: its job key is not the key of this job"));
}

TEST_CASE("strangers are dropped while the job comes together") {
  const auto port = free_port();
  std::vector<std::string> outcomes;
  std::thread job([&] {
    outcomes = on_threads(3, [&](int rank) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank * 150));
      ProcessGroup group = ProcessGroup::over_tcp(place_of(rank, 3, port));
      std::vector<int> x = {1};
      group.all_reduce(std::span(x));
      require(x[0] == 3, "{}", x[0]);
    });
  });
  {
    const Stranger browser(port,
                           "GET / HTTP/1.1\r\nHost: ringside\r\nUser-Agent: a browser that is lost "
                           "and says a lot about itself, 96 bytes at least\r\n\r\n");
    const Stranger shy(port, "half");
    const Stranger silent(port, "");
    job.join();
  }
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE("strangers that come in the middle of a job find nobody and the job goes on") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    ProcessGroup group = ProcessGroup::over_tcp(place_of(rank, 3, port));
    std::vector<int> x(1000);
    for (int i = 0; i < 50; ++i) {
      group.all_reduce(std::span(x));
      if (rank != 0) continue;
      boost::asio::io_context io;
      boost::asio::ip::tcp::socket stranger(io);
      boost::system::error_code error;
      stranger.connect({boost::asio::ip::address_v4::loopback(), port}, error);
      require(error == boost::asio::error::connection_refused, "the stranger was let in: {}",
              error.message());
    }
  });
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE("members of the job that say what no rank would say are dropped and the job goes on") {
  const auto port = free_port();
  Hello member;
  member.key = hash_of("test");
  member.size = 3;
  std::vector<Hello> odd(5, member);
  odd[0].purpose = 77;
  odd[1].purpose = Hello::data, odd[1].rank = 1000000;
  odd[2].purpose = Hello::lifeline, odd[2].rank = -1;
  odd[3].purpose = Hello::data, odd[3].rank = 0;
  odd[4].version = 99;
  std::vector<std::string> outcomes;
  std::thread job([&] {
    outcomes = on_threads(3, [&](int rank) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank * 150));
      ProcessGroup group = ProcessGroup::over_tcp(place_of(rank, 3, port));
      group.barrier();
    });
  });
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (const Hello& hello : odd)
    strangers.push_back(std::make_unique<Stranger>(port, bytes_of(hello)));
  job.join();
  for (const auto& text : outcomes) CHECK(text == "");
}

TEST_CASE(
    "whatever listens in the place of rank 0 cannot make the others wait for or keep a length that "
    "it names") {
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
      {answer(Answer::table, 10), "rank 0 went away while the ranks were coming together ("},
      {answer(Answer::table, 10) + "0123456789", "rank 0 sent a table of 10 bytes for 2 ranks"},
      {answer(Answer::table, 2 * sizeof(Address)) + std::string(2 * sizeof(Address), 'x'),
       "this was said to be the address of a rank, and is none: 'xxx"},
      {answer(Answer::refusal, 9) + "not you\x1b[", "rank 0 refuses: not you?["},
  };
  for (const auto& [bytes, expected] : cases) {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    const auto port = acceptor.local_endpoint().port();
    const auto outcomes = on_threads(2, [&](int i) {
      if (i == 1) meet(place_of(1, 2, port));
      if (i == 1) return;
      auto socket = acceptor.accept();
      boost::asio::write(socket, boost::asio::buffer(bytes));
      socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send);
      std::array<char, 96> greeting;
      boost::system::error_code ignored;
      boost::asio::read(socket, boost::asio::buffer(greeting),
                        ignored);  // else it is a reset that the rank sees
    });
    CAPTURE(bytes);
    CAPTURE(outcomes[1]);
    CHECK(contains(outcomes[1], fmt::format(fmt::runtime(expected), port)));
  }
}

TEST_CASE(
    "a network interface is named by RINGSIDE_INTERFACE and those that exist are listed where it "
    "does not") {
  const auto port = free_port();
  const auto on_interface = [&](const char* name) {
    return on_threads(2, [&](int rank) {
      RankInfo rank_info = impatient(rank, 2, port);
      rank_info.interface = name;
      ProcessGroup::over_tcp(rank_info).barrier();
    });
  };
  for (const auto& text : on_interface("lo")) CHECK(text == "");
  const std::string sentence =
      "RINGSIDE_INTERFACE=lo7 is no network interface of this host with an IPv4 address, as "
      "MASTER_ADDR is one; there ";
  const auto wrong = on_interface("lo7");
  CAPTURE(wrong[0]);
  CHECK(contains(wrong[0], sentence));
  CHECK(contains(wrong[0], "lo (127.0.0.1)"));
  const Environment environment{{"RANK", "0"},
                                {"WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "[fd00::1]"},
                                {"RINGSIDE_INTERFACE", "eth1"}};
  CHECK(rank_info_from_environment().interface == "eth1");
  CHECK(rank_info_from_environment().master_address == "fd00::1");
}

TEST_CASE("the place comes from the variables of torchrun") {
  const Environment environment{{"RANK", "3"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "2"},
                                {"MASTER_ADDR", "10.1.2.3"},
                                {"MASTER_PORT", "4711"},
                                {"RINGSIDE_JOB_KEY", "k"}};
  const RankInfo rank_info = rank_info_from_environment();
  CHECK(rank_info.rank == 3);
  CHECK(rank_info.size == 8);
  CHECK(rank_info.local_rank == 1);
  CHECK(rank_info.local_size == 2);
  CHECK(rank_info.master_address == "10.1.2.3");
  CHECK(rank_info.master_port == 4711);
  CHECK(rank_info.job_key == "k");
}

TEST_CASE("without any launcher the world is one rank") {
  const Environment environment{};
  CHECK(rank_info_from_environment().size == 1);
}

TEST_CASE("the place comes from Open MPI and from Slurm where torchrun's names are unset") {
  {
    const Environment environment{{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                  {"PMIX_NAMESPACE", "1234"}};
    const RankInfo rank_info = rank_info_from_environment();
    CHECK(rank_info.rank == 2);
    CHECK(rank_info.size == 4);
    CHECK(rank_info.local_size == 4);
    CHECK(rank_info.master_address == "127.0.0.1");
    CHECK(rank_info.job_key == "1234");
    CHECK(rank_info.master_port >= 20000);
  }
  const Environment environment{{"SLURM_PROCID", "5"},
                                {"SLURM_NTASKS", "6"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_JOB_ID", "99"},
                                {"SLURM_JOB_NODELIST", "gpu[07-09,12]"}};
  const RankInfo rank_info = rank_info_from_environment();
  CHECK(rank_info.rank == 5);
  CHECK(rank_info.size == 6);
  CHECK(rank_info.local_rank == 1);
  CHECK(rank_info.master_address == "gpu07");
}

TEST_CASE("the first host of a node list of Slurm") {
  CHECK(first_host_of("login") == "login");
  CHECK(first_host_of("a,b") == "a");
  CHECK(first_host_of("n[3-5]") == "n3");
  CHECK(first_host_of("n[003,007]") == "n003");
  CHECK(first_host_of("a,n[1-2]") == "a");
  CHECK_THROWS_WITH_AS(first_host_of("n[1"),
                       "SLURM_JOB_NODELIST=n[1 has a bracket that does not close", Error);
}

TEST_CASE("variables that make no sense are named") {
  {
    const Environment environment{{"RANK", "3"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "RANK is set but WORLD_SIZE is not: a launcher sets both, or neither",
                         Error);
  }
  {
    const Environment environment{{"RANK", "3"}, {"WORLD_SIZE", "3"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "RANK=3 does not fit WORLD_SIZE=3: ranks are numbered from 0 to 2", Error);
  }
  {
    const Environment environment{{"RANK", "0"}, {"WORLD_SIZE", "two"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "WORLD_SIZE=two is not an integer from 1 to 2147483647", Error);
  }
  {
    const Environment environment{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}};
    CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                         "MASTER_PORT=70000 is not an integer from 1 to 65535", Error);
  }
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "0"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  CHECK_THROWS_WITH_AS(rank_info_from_environment(),
                       "this job has ranks on several hosts, and Open MPI does not say where rank "
                       "0 is: set MASTER_ADDR",
                       Error);
}

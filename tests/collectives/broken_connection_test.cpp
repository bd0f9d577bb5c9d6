// Connections that break, and bytes that are no messages: every rank names the rank to blame.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <boost/asio/write.hpp>

#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/diagnostics/socket_control_channel.hpp"
#include "collectives/transport/tcp.hpp"
#include "tests/collectives/failures.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Ranks 0 and 1 call an all-reduce of 48000 floats over TCP. Rank 2 has only its connections to
// them, which `misdeed` abuses. Returns the errors of ranks 0 and 1.
std::vector<std::string> with_faulty_rank_2(const std::function<void(Mesh&)>& misdeed,
                                            const GroupOptions& options = patience(20)) {
  const auto port = free_port();
  std::atomic<int> ended = 0;
  auto outcomes = on_threads(3, [&](int rank) {
    if (rank == 2) {
      RankInfo rank_info = rank_info_of(2, 3, port);
      rank_info.backend = "tcp";
      Mesh mesh = connect_mesh(rank_info);
      misdeed(mesh);
      // The other connections stay open until both ranks have ended.
      while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    const std::unique_ptr<std::atomic<int>, void (*)(std::atomic<int>*)> at_the_end(
        &ended, [](std::atomic<int>* count) { ++*count; });
    ProcessGroup group = ProcessGroup::over("tcp", rank_info_of(rank, 3, port), options);
    all_reduce_of<float>(48000)(group);
  });
  outcomes.pop_back();
  return outcomes;
}

// The first message that rank 0 expects from rank 2.
MessageHeader first_header() {
  Call call;
  call.collective = Collective::all_reduce;
  call.algorithm = static_cast<std::uint8_t>(&find_algorithm(Collective::all_reduce, "ring") -
                                             all_algorithms().data());
  call.count = 48000;
  MessageHeader header;
  header.job = job_number("test");
  header.sequence = 1;
  header.call = call;
  header.bytes = 64000;
  return header;
}

template <class T>
std::string bytes_of(const T& words) {
  return std::string(reinterpret_cast<const char*>(&words), sizeof words);
}

void say(std::optional<Mesh::Socket>& socket, const std::string& bytes) {
  boost::asio::write(*socket, boost::asio::buffer(bytes));
}

// Closes with a reset instead of an orderly end, as a host does that has lost the connection.
void reset(std::optional<Mesh::Socket>& socket) {
  socket->set_option(boost::asio::socket_base::linger(true, 0));
  socket->close();
}

// One rank notices the failure, and the other hears it from that rank.
void check_all_say(const std::vector<std::string>& outcomes, const std::string& sentence) {
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, sentence));
  }
}

}  // namespace

TEST_CASE("all ranks name a connection that is reset in the middle of a message") {
  const auto outcomes = with_faulty_rank_2([](Mesh& mesh) {
    say(mesh.data[0], bytes_of(first_header()) + std::string(1000, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    reset(mesh.data[0]);
  });
  check_all_say(outcomes, "the connection to rank 2 broke: Connection reset by peer");
}

TEST_CASE("all ranks name a connection that ends in the middle of a header") {
  const auto outcomes = with_faulty_rank_2([](Mesh& mesh) {
    say(mesh.data[0], bytes_of(first_header()).substr(0, 40));
    // Not closed: with unread bytes that would be a reset.
    mesh.data[0]->shutdown(Mesh::Socket::shutdown_send);
  });
  check_all_say(outcomes, "the connection to rank 2 broke: End of file");
}

TEST_CASE("a rank whose connections are all reset is reported as gone") {
  const auto outcomes = with_faulty_rank_2([](Mesh& mesh) {
    say(mesh.data[0], bytes_of(first_header()) + std::string(1000, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (const int r : {0, 1}) reset(mesh.data[r]), reset(mesh.control[r]);
  });
  check_all_say(outcomes,
                "rank 2 is gone: its connection closed without a goodbye, as when a process is "
                "killed or crashes");
}

TEST_CASE("a lost control connection is noticed while data flows") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    Mesh mesh = connect_mesh(rank_info_of(rank, 3, port));
    const auto release = [](std::vector<std::optional<Mesh::Socket>>& sockets) {
      std::vector<FileDescriptor> descriptors;
      for (auto& socket : sockets)
        descriptors.push_back(socket ? FileDescriptor(socket->release()) : FileDescriptor());
      return descriptors;
    };
    auto control = release(mesh.control);
    const FileDescriptor to_rank_0(rank == 2 ? ::dup(control[0].get()) : -1);
    ProcessGroup group(
        make_schedule_backend({make_tcp_transport(rank, job_number("test"), release(mesh.data)),
                               make_socket_control_channel(rank, std::move(control)), nullptr}));
    std::vector<float> x(100);
    const Deadline deadline = Deadline::after(Seconds(5));
    for (int call = 0; !deadline.expired(); ++call) {
      if (call == 20 && rank == 2) ::shutdown(to_rank_0.get(), SHUT_RDWR);
      group.all_reduce(std::span(x));
    }
  });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, " is gone: its connection closed without a goodbye"));
  }
}

TEST_CASE("a lost control connection is noticed while data flows over shared memory") {
  // The connected sockets of this process: over shared memory, those of control channels only.
  const auto sockets = [] {
    std::set<int> connected;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      sockaddr_storage peer;
      socklen_t length = sizeof peer;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
          peer.ss_family != AF_UNIX)
        connected.insert(fd);
    }
    return connected;
  };
  const auto port = free_port();
  const std::set<int> before = sockets();
  const auto outcomes = on_threads(3, [&](int rank) {
    ProcessGroup group = ProcessGroup::over("shm", rank_info_of(rank, 3, port), {});
    std::vector<float> x(100);
    const Deadline deadline = Deadline::after(Seconds(5));
    for (int call = 0; !deadline.expired(); ++call) {
      if (call == 20 && rank == 2)
        for (const int fd : sockets())
          if (!before.contains(fd)) {
            ::shutdown(fd, SHUT_RDWR);
            break;
          }
      group.all_reduce(std::span(x));
    }
  });
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(contains(text, " is gone: its connection closed without a goodbye"));
  }
}

TEST_CASE("a rank that sends half a header is named at the deadline") {
  const auto outcomes = with_faulty_rank_2(
      [](Mesh& mesh) { say(mesh.data[0], bytes_of(first_header()).substr(0, 40)); }, patience(2.5));
  check_all_say(outcomes,
                "rank 2 does not answer: stopped, stuck, or busy outside of the collectives; "
                "nothing came to rank ");
}

TEST_CASE("all ranks report bytes that are not a message and lengths that nobody expects") {
  struct Case {
    const char* sentence;
    std::function<void(MessageHeader&)> change;
  };
  const std::vector<Case> cases = {
      {"rank 0 received bytes from rank 2 that are not a message of this job",
       [](MessageHeader& h) { h.magic = 0x20544547; }},
      {"rank 0 received bytes from rank 2 that are not a message of this job",
       [](MessageHeader& h) { h.job += 1; }},
      {"(64000 bytes) of call #1, all_reduce of 48000 fp32 (sum, ring), from rank 2, but received "
       "step 0 slice 0 (1152921504606846976 bytes)",
       [](MessageHeader& h) { h.bytes = std::uint64_t{1} << 60; }},
      {"from rank 2, but received step 4294967295 slice 0 (64000 bytes): do the ranks run "
       "different versions or settings",
       [](MessageHeader& h) { h.step = ~0u; }},
      {"but rank 2 makes call #1, all_reduce of 18446744073709551615 fp32 (sum, ring)",
       [](MessageHeader& h) { h.call.count = ~0ull; }},
      {"but rank 2 makes call #1, collective 200 of 48000. Every rank",
       [](MessageHeader& h) { h.call.collective = static_cast<Collective>(200); }},
      {"but rank 2 makes call #1, all_reduce of 48000 unknown type (unknown op, algorithm 200) for "
       "\\x1b[2J",
       [](MessageHeader& h) {
         h.call.algorithm = 200, h.call.type = static_cast<DataType>(99),
         h.call.reduce = static_cast<ReduceOp>(99);
         h.call.label = Label("\x1b[2J");
       }},
  };
  for (const Case& c : cases) {
    const auto outcomes = with_faulty_rank_2([&](Mesh& mesh) {
      auto header = first_header();
      c.change(header);
      say(mesh.data[0], bytes_of(header));
    });
    check_all_say(outcomes, c.sentence);
  }
}

TEST_CASE("all ranks report bytes that are not control messages") {
  for (const std::string& bytes : {std::string(96, 'x'), bytes_of(first_header())}) {
    const auto outcomes = with_faulty_rank_2([&](Mesh& mesh) { say(mesh.control[1], bytes); });
    check_all_say(outcomes,
                  "rank 2 sends bytes that are not control messages: do the ranks run different "
                  "versions?");
  }
}

// Failures: every rank names the rank to blame and the call, and no rank waits for ever.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include <boost/asio/write.hpp>

#include "collectives/bootstrap/connect.hpp"
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/diagnostics/socket_control_channel.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/transport/tcp.hpp"
#include "collectives/transport/transport.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

GroupOptions patience(double seconds) {
  GroupOptions options;
  options.executor.timeout = Seconds(seconds);
  // In a ring every rank needs every other.
  options.algorithms = AlgorithmSelection("all_reduce=ring");
  return options;
}

// Runs `body` over threads. Returns the text of each rank's exception.
std::vector<std::string> outcomes_over_threads(int size,
                                               const std::function<void(ProcessGroup&)>& body,
                                               const GroupOptions& options) {
  const auto world = make_threads_world(size);
  return on_threads(size, [&](int rank) {
    ProcessGroup group(make_schedule_backend(connect_threads(world, rank), options.executor));
    body(group);
  });
}

template <class Check>
void over_every_transport(int size, const std::function<void(ProcessGroup&)>& body,
                          const GroupOptions& options, Check check) {
  {
    INFO("over threads");
    check(outcomes_over_threads(size, body, options));
  }
  {
    INFO("over shm");
    check(run_shm(size, body, options));
  }
  INFO("over tcp");
  check(run_tcp(size, body, options));
}

}  // namespace

namespace {

// A transport that runs out of memory in its second message, in front of another transport.
class OutOfMemory final : public Transport {
 public:
  explicit OutOfMemory(std::unique_ptr<Transport> inner)
      : Transport(inner->rank(), inner->size(), inner->job()), inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  int window() const override { return inner_->window(); }
  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override {
    if (++sends_ == 2) throw std::bad_alloc();
    inner_->post_send(peer, header, payload);
  }
  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    inner_->post_receive(peer, expected, into);
  }
  std::optional<Completion> wait(const Deadline& deadline) override {
    return inner_->wait(deadline);
  }
  void release() override { inner_->release(); }
  void cancel() noexcept override { inner_->cancel(); }

 private:
  std::unique_ptr<Transport> inner_;
  int sends_ = 0;
};

}  // namespace

TEST_CASE("a rank that runs out of memory in a call tells the others at once") {
  for (const auto kind : {ExecutorKind::simple, ExecutorKind::pipelined}) {
    const auto world = make_threads_world(3);
    GroupOptions options = patience(60);
    options.executor.kind = kind;
    const auto start = Clock::now();
    const auto outcomes = on_threads(3, [&](int rank) {
      Connections connections = connect_threads(world, rank);
      if (rank == 1)
        connections.transport = std::make_unique<OutOfMemory>(std::move(connections.transport));
      ProcessGroup group(make_schedule_backend(std::move(connections), options.executor),
                         options.algorithms);
      std::vector<float> x(3000);
      group.all_reduce(std::span(x));
    });
    CHECK(seconds_since(start) < 30);  // not the deadline
    for (const auto& text : outcomes) {
      CAPTURE(text);
      CHECK(contains(text, "rank 1 failed in call #1, all_reduce of 3000 fp32 (sum, ring), step "));
      CHECK(contains(text, ": out of memory"));
    }
  }
}

TEST_CASE("ranks that disagree on the count name both calls") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(group.rank() == 1 ? 200 : 100);
    group.all_reduce(std::span(x));
  };
  over_every_transport(3, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const auto& text : outcomes) {
      CAPTURE(text);
      CHECK(contains(text, "the ranks disagree: rank "));
      CHECK(contains(text, "all_reduce of 100 fp32 (sum, ring)"));
      CHECK(contains(text, "all_reduce of 200 fp32 (sum, ring)"));
      CHECK(contains(text, "Every rank must make the same calls in the same order"));
    }
  });
}

namespace {

// Rank 2 calls `other`, all others call `one`. Every rank that ends with an error names both calls
// within a second.
struct Mismatch {
  std::string kind;
  std::function<void(ProcessGroup&)> one, other;
  const char *says_one, *says_other;
};

template <Element T>
std::function<void(ProcessGroup&)> all_reduce_of(std::size_t count, ReduceOp op = ReduceOp::sum,
                                                 const char* algorithm = "ring") {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmSelection(std::string("all_reduce=") + algorithm));
    std::vector<T> x(count);
    group.all_reduce(std::span(x), op);
  };
}

std::function<void(ProcessGroup&)> broadcast_from(int root, std::size_t count) {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmSelection("broadcast=binomial"));
    std::vector<float> x(count);
    group.broadcast(std::span(x), root);
  };
}

std::function<void(ProcessGroup&)> reduce_to(int root) {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmSelection("reduce=binomial"));
    std::vector<float> x(64), y(64);
    group.reduce(std::span(x), std::span(y), root);
  };
}

void barrier(ProcessGroup& group) {
  group.barrier();
}

const std::vector<Mismatch> mismatches = {
    {"collective", all_reduce_of<float>(64), barrier,
     "makes call #1, all_reduce of 64 fp32 (sum, ring)", "makes call #1, barrier"},
    {"type", all_reduce_of<float>(64), all_reduce_of<std::int32_t>(64),
     "all_reduce of 64 fp32 (sum, ring)", "all_reduce of 64 int32 (sum, ring)"},
    {"count", all_reduce_of<float>(64), all_reduce_of<float>(65),
     "all_reduce of 64 fp32 (sum, ring)", "all_reduce of 65 fp32 (sum, ring)"},
    {"long count", all_reduce_of<float>(3000000), all_reduce_of<float>(3000001),
     "all_reduce of 3000000 fp32", "all_reduce of 3000001 fp32"},
    {"reduce op", all_reduce_of<float>(64), all_reduce_of<float>(64, ReduceOp::max),
     "64 fp32 (sum, ring)", "64 fp32 (max, ring)"},
    {"algorithm", all_reduce_of<float>(64), all_reduce_of<float>(64, ReduceOp::sum, "naive"),
     "64 fp32 (sum, ring)", "64 fp32 (sum, naive)"},
    {"type of a few bytes", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<std::int32_t>(8, ReduceOp::sum, "one_shot"),
     "all_reduce of 8 fp32 (sum, one_shot)", "all_reduce of 8 int32 (sum, one_shot)"},
    {"few bytes or none", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<float>(0, ReduceOp::sum, "one_shot"), "all_reduce of 8 fp32 (sum, one_shot)",
     "all_reduce of 0 fp32 (sum, one_shot)"},
    {"few bytes or many", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<float>(8000, ReduceOp::sum, "one_shot"), "all_reduce of 8 fp32 (sum, one_shot)",
     "all_reduce of 8000 fp32 (sum, one_shot)"},
    {"algorithm for a few bytes", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"),
     all_reduce_of<float>(8), "all_reduce of 8 fp32 (sum, one_shot)",
     "all_reduce of 8 fp32 (sum, ring)"},
    {"few bytes or a barrier", all_reduce_of<float>(8, ReduceOp::sum, "one_shot"), barrier,
     "makes call #1, all_reduce of 8 fp32 (sum, one_shot)", "makes call #1, barrier"},
    {"root", broadcast_from(0, 64), broadcast_from(1, 64),
     "makes call #1, broadcast of 64 fp32 from rank 0 (binomial)",
     "makes call #1, broadcast of 64 fp32 from rank 1 (binomial)"},
    {"root of much", broadcast_from(0, 5000000), broadcast_from(1, 5000000),
     "broadcast of 5000000 fp32 from rank 0 (binomial)",
     "broadcast of 5000000 fp32 from rank 1 (binomial)"},
    {"root of a reduce", reduce_to(0), reduce_to(1), "reduce of 64 fp32 to rank 0 (sum, binomial)",
     "reduce of 64 fp32 to rank 1 (sum, binomial)"},
};

// Checks the texts of the ranks that ended with an error. Returns how many did.
int named_by(const std::vector<std::string>& outcomes, const Mismatch& mismatch) {
  int ranks = 0;
  for (const auto& text : outcomes) {
    if (text.empty()) continue;
    ++ranks;
    CAPTURE(text);
    CHECK(contains(text, "the ranks disagree: rank "));
    CHECK(contains(text, mismatch.says_one));
    CHECK(contains(text, mismatch.says_other));
    CHECK(contains(text, "Every rank must make the same calls in the same order"));
  }
  return ranks;
}

}  // namespace

TEST_CASE("every rank names both calls within a second whatever the ranks disagree on") {
  for (const Mismatch& mismatch : mismatches) {
    CAPTURE(mismatch.kind);
    const auto body = [&](ProcessGroup& group) {
      const auto start = Clock::now();
      try {
        (group.rank() == 2 ? mismatch.other : mismatch.one)(group);
        // A rank whose call ended before it could notice the mismatch learns of it here.
        for (int i = 0; i < 3; ++i) all_reduce_of<double>(10)(group);
      } catch (const Error&) {
        // One second, and time for a busy machine; the deadline is 20 s.
        require(seconds_since(start) < 10, "it took {:.1f} s", seconds_since(start));
        throw;
      }
    };
    over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
      CHECK(named_by(outcomes, mismatch) == 3);
    });
  }
}

TEST_CASE("ranks that still wait learn of a disagreement in the last call of the others") {
  for (const Mismatch& mismatch : mismatches) {
    CAPTURE(mismatch.kind);
    const auto body = [&](ProcessGroup& group) {
      (group.rank() == 2 ? mismatch.other : mismatch.one)(group);
    };
    over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
      CHECK(named_by(outcomes, mismatch) >= 1);
    });
  }
}

TEST_CASE(
    "the first call in which the ranks differ is named rather than a later one in which it shows") {
  const auto body = [](ProcessGroup& group) {
    all_reduce_of<float>(10)(group);
    broadcast_from(group.rank() == 2 ? 1 : 0, 64)(group);
    for (int i = 0; i < 20; ++i) broadcast_from(0, 64)(group);
    all_reduce_of<float>(10)(group);
  };
  const Mismatch mismatch{"root",
                          {},
                          {},
                          "makes call #2, broadcast of 64 fp32 from rank 0",
                          "makes call #2, broadcast of 64 fp32 from rank 1"};
  over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
    CHECK(named_by(outcomes, mismatch) == 3);
  });
}

TEST_CASE("ranks that disagree on the order name both calls") {
  const auto body = [](ProcessGroup& group) {
    if (group.rank() == 2) group.barrier();
    all_reduce_of<float>(64)(group);
    if (group.rank() != 2) group.barrier();
  };
  const Mismatch mismatch{"order",
                          {},
                          {},
                          "makes call #1, barrier",
                          "makes call #1, all_reduce of 64 fp32 (sum, ring)"};
  over_every_transport(3, body, patience(20), [&](const std::vector<std::string>& outcomes) {
    CHECK(named_by(outcomes, mismatch) == 3);
  });
}

TEST_CASE("ranks that wait for a rank that has left name it") {
  const auto body = [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) return;
    std::vector<float> x(1000000);
    group.all_reduce(std::span(x));
  };
  over_every_transport(3, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const int rank : {0, 2}) {
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank], "rank 1 has left the group, and rank "));
      CHECK(contains(outcomes[rank], "all_reduce of 1000000 fp32 (sum, ring)"));
    }
    CHECK(outcomes[1] == "");
  });
}

TEST_CASE("a rank that gives up tells the others why") {
  const auto body = [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 2) {
      group.abort("rank 2 gave up: its data file is empty");
      fail("its data file is empty");
    }
    std::vector<float> x(1000000);
    for (int i = 0; i < 100; ++i) group.all_reduce(std::span(x));
  };
  over_every_transport(4, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const int rank : {0, 1, 3}) {
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank], "rank 2 gave up: its data file is empty"));
    }
  });
}

TEST_CASE("all ranks name a rank that does not call in time and say where they are") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(100);
    group.all_reduce(std::span(x));
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    group.all_reduce(std::span(x));
  };
  over_every_transport(4, body, patience(1), [](const std::vector<std::string>& outcomes) {
    for (const int rank : {0, 1, 2, 3}) {  // rank 2 also, when it calls at last
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank],
                     "rank 2 does not answer: stopped, stuck, or busy outside of the collectives"));
      CHECK(contains(outcomes[rank], "call #2, all_reduce of 100 fp32 (sum, ring)"));
    }
    for (const auto& text : outcomes)
      CHECK((contains(text, "from rank 2 for 1.0 s") ||
             contains(text, "waits for rank 2 in step 1 of call #2")));
  });
}

TEST_CASE("a rank that waits for long warns once and says when it goes on") {
  std::mutex mutex;
  std::vector<std::string> warnings;
  GroupOptions options = patience(20);
  options.executor.warn_after = Seconds(2);
  options.executor.warn = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    warnings.push_back(sentence);
  };
  const auto warned = [&] {
    const std::lock_guard lock(mutex);
    return warnings.size();
  };
  const auto body = [&](ProcessGroup& group) {
    all_reduce_of<float>(100)(group);
    const Deadline deadline = Deadline::after(Seconds(15));
    while (group.rank() == 2 && warned() < 2 && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    all_reduce_of<float>(100)(group);
  };
  over_every_transport(3, body, options, [&](const std::vector<std::string>& outcomes) {
    for (const auto& text : outcomes) CHECK(text == "");
    std::sort(warnings.begin(), warnings.end());
    CAPTURE(warnings);
    REQUIRE(warnings.size() == 4);  // ranks 0 and 1 each say that they wait, and that they go on
    CHECK(warnings[0].starts_with("rank 0 has waited for rank 2 for "));
    CHECK(contains(warnings[0],
                   " s in call #2, all_reduce of 100 fp32 (sum, ring), step 1 of 4, and will up to "
                   "20 s. rank 2 does not answer: stopped, stuck, or busy outside of the "
                   "collectives; rank 1 waits for rank 0 in step 2 of call #2"));
    CHECK(warnings[1].starts_with("rank 0 went on after "));
    CHECK(warnings[1].ends_with(" s, in call #2"));
    CHECK(warnings[2].starts_with("rank 1 has waited for rank 0 for "));
    CHECK(contains(warnings[2], " s in call #2, all_reduce of 100 fp32 (sum, ring), step 2 of 4"));
    CHECK(warnings[3].starts_with("rank 1 went on after "));
    CHECK(warnings[3].ends_with(" s, in call #2"));
    warnings.clear();
  });
}

TEST_CASE("a rank does not warn if warnings are off or if its deadline is earlier") {
  for (const double after : {0.0, 5.0}) {
    GroupOptions options = patience(1);
    options.executor.warn_after = Seconds(after);
    std::atomic<int> warnings = 0;
    options.executor.warn = [&](const std::string&) { ++warnings; };
    const auto body = [](ProcessGroup& group) {
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      group.barrier();
    };
    for (const auto& text : outcomes_over_threads(2, body, options))
      CHECK(contains(text, "rank 1 does not answer"));
    CHECK(warnings == 0);
  }
}

TEST_CASE("after a failure every later call fails with the first cause") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(group.rank() == 1 ? 200 : 100);
    try {
      group.all_reduce(std::span(x));
    } catch (const Error&) {
    }
    group.barrier();
  };
  over_every_transport(2, body, patience(20), [](const std::vector<std::string>& outcomes) {
    for (const auto& text : outcomes) CHECK(contains(text, "the ranks disagree: rank "));
  });
}

TEST_CASE("run_threads throws the first cause") {
  CHECK_THROWS_WITH_AS(run_threads(3,
                                   [](ProcessGroup& group) {
                                     if (group.rank() == 1) fail("no more memory");
                                     group.barrier();
                                   }),
                       "no more memory", Error);
}

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

// A rank that fails, leaves or does not answer: every rank names it and the call, and none waits
// for ever.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/execution/executor_options.hpp"
#include "collectives/transport/transport.hpp"
#include "tests/collectives/failures.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

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
             contains(text, "waits for rank 2 in step 0 of call #2")));
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
    CHECK(contains(
        warnings[0],
        " s in call #2, all_reduce of 100 fp32 (sum, ring), step 0 (of 0 to 3), and will up to "
        "20 s. rank 2 does not answer: stopped, stuck, or busy outside of the "
        "collectives; rank 1 waits for rank 0 in step 1 of call #2"));
    CHECK(warnings[1].starts_with("rank 0 went on after "));
    CHECK(warnings[1].ends_with(" s, in call #2"));
    CHECK(warnings[2].starts_with("rank 1 has waited for rank 0 for "));
    CHECK(contains(warnings[2],
                   " s in call #2, all_reduce of 100 fp32 (sum, ring), step 1 (of 0 to 3)"));
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

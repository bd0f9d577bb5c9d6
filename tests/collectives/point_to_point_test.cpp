// send and recv between two ranks, while the others do something else.
#include <chrono>
#include <thread>

#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

GroupOptions patience(double seconds) {
  GroupOptions options;
  options.executor.timeout = Seconds(seconds);
  return options;
}

std::vector<float> count_from(float first, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i % 1000);
  return values;
}

}  // namespace

TEST_CASE("messages of any length arrive in order") {
  on_every_transport(3, [](ProcessGroup& group) {
    for (const std::size_t count :
         {std::size_t(0), std::size_t(1), std::size_t(1003), std::size_t(700000)}) {
      std::vector<float> one(count), two(count);
      if (group.rank() == 2) {
        one = count_from(1, count), two = count_from(2, count);
        group.send(std::span(one), 0);
        group.send(std::span(two), 0);
      } else if (group.rank() == 0) {
        group.recv(std::span(one), 2);
        group.recv(std::span(two), 2);
        require(one == count_from(1, count) && two == count_from(2, count),
                "other numbers arrived than were sent");
      }
    }
  });
}

TEST_CASE("sends between two ranks do not change the numbers of the collectives") {
  on_every_transport(4, [](ProcessGroup& group) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> x(100, static_cast<float>(group.rank()));
      const int last = group.size() - 1;
      if (group.rank() == 0) group.send(std::span(x), last);
      if (group.rank() == last) group.recv(std::span(x), 0);
      if (group.rank() == last) require(x[99] == 0, "received {}", x[99]);
      if (group.rank() == last && round % 2 == 0) group.send(std::span(x), 1);
      if (group.rank() == 1 && round % 2 == 0) group.recv(std::span(x), last);
      std::vector<float> ones(50, 1);
      group.all_reduce(std::span(ones));
      require(ones[0] == 4, "the sum of four ones is {}", ones[0]);
    }
  });
}

TEST_CASE("a pipeline passes on what it receives") {
  on_every_transport(4, [](ProcessGroup& group) {
    std::vector<std::int64_t> x(300);
    for (int micro_batch = 0; micro_batch < 8; ++micro_batch) {
      if (group.rank() > 0) group.recv(std::span(x), group.rank() - 1);
      for (auto& each : x) each = group.rank() == 0 ? micro_batch : each + 1;
      if (group.rank() + 1 < group.size()) group.send(std::span(x), group.rank() + 1);
      if (group.rank() == 3)
        require(x[299] == micro_batch + 3, "micro-batch {} arrived as {}", micro_batch, x[299]);
    }
  });
}

TEST_CASE("a send and a recv that differ name both calls") {
  const auto body = [](ProcessGroup& group) {
    std::vector<float> x(200);
    if (group.rank() == 0) group.send(std::span(x).first(100), 1);
    if (group.rank() == 1) group.recv(std::span(x), 0);
    group.barrier();
  };
  for (const auto& outcomes : {run_tcp(3, body, patience(20)), run_shm(3, body, patience(20))})
    for (const auto& text : outcomes) {
      CAPTURE(text);
      CHECK(contains(
          text,
          "the ranks disagree: rank 1 makes call #1, send/recv of 200 fp32 from rank 0 to rank 1"));
      CHECK(
          contains(text, "but rank 0 makes call #1, send/recv of 100 fp32 from rank 0 to rank 1"));
    }
}

TEST_CASE("a recv without a send ends at the deadline and names the rank it waited for") {
  const auto outcomes = run_tcp(
      2,
      [](ProcessGroup& group) {
        std::vector<float> x(8);
        if (group.rank() == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(3500));
        group.recv(std::span(x), 1);
      },
      patience(1));
  CAPTURE(outcomes[0]);
  CHECK(contains(outcomes[0], "nothing came to rank 0 from rank 1 for 1.0 s"));
  CHECK(contains(outcomes[0], "send/recv of 8 fp32 from rank 1 to rank 0"));
}

TEST_CASE("peers that do not exist are refused before anything is sent") {
  run_threads(2, [](ProcessGroup& group) {
    const auto text_of = [](auto call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        return error.what();
      }
      return "no error";
    };
    std::vector<float> x(3);
    const auto to = text_of([&] { group.send(std::span(x), 2); });
    require(to == fmt::format("rank {} can send to and receive from the other ranks of 0 to 1, not "
                              "rank 2",
                              group.rank()),
            "{}", to);
    const auto from = text_of([&] { group.recv(std::span(x), group.rank()); });
    require(from == fmt::format("rank {0} can send to and receive from the other ranks of 0 to 1, "
                                "not rank {0}",
                                group.rank()),
            "{}", from);
    group.barrier();
  });
}

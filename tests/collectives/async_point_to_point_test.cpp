// send_async and recv_async: many under way at a time, in order, and apart from other groups.
#include <chrono>
#include <optional>

#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

using Values = std::vector<float>;

Work start_send(ProcessGroup& group, const Values& values, int to, const char* label = "") {
  return group.send_async(std::span(values), to, label);
}

Work start_recv(ProcessGroup& group, Values& values, int from, const char* label = "") {
  return group.recv_async(std::span(values), from, label);
}

}  // namespace

TEST_CASE("many sends and receives are under way at a time, and arrive in order") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      const int last = group.size() - 1;
      std::vector<Values> messages;
      for (int i = 0; i < 20; ++i)
        messages.emplace_back(1000 * i, group.rank() == 0 ? static_cast<float>(i) : -1);
      std::vector<Work> works;
      for (Values& message : messages) {
        if (group.rank() == 0) works.push_back(start_send(group, message, last));
        if (group.rank() == last) works.push_back(start_recv(group, message, 0));
      }
      for (const Work& work : works) work.wait();
      for (int i = 0; group.rank() == last && i < 20; ++i)
        for (const float value : messages[i])
          require(value == static_cast<float>(i), "message {} brought {}", i, value);
    });
}

// A receive that nobody answers yet is posted in one sub-group. Everything else goes on.
TEST_CASE("a posted receive holds up no other group") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      ProcessGroup lane = group.split(group.rank() < 2 ? 0 : group.rank());
      Values late(5000, static_cast<float>(group.rank()));
      std::optional<Work> posted;
      if (group.rank() == 1) posted = start_recv(lane, late, 0);
      for (int round = 0; round < 3; ++round) {
        Values ones(700, 1);
        group.all_reduce(std::span(ones));
        require(ones[0] == static_cast<float>(group.size()), "the sum of ones is {}", ones[0]);
      }
      if (group.rank() == 1) require(!posted->done(), "received before it was sent");
      group.barrier();
      if (group.rank() == 0) start_send(lane, late, 1).wait();
      if (group.rank() == 1) {
        posted->wait();
        require(late.back() == 0, "received {}", late.back());
      }
    });
}

TEST_CASE("sends and receives that differ throw from wait and name both calls") {
  const auto body = [](ProcessGroup& group) {
    Values values(100);
    if (group.rank() == 0) start_send(group, values, 1, "gradients").wait();
    if (group.rank() == 1) start_recv(group, values, 0, "activations").wait();
    group.barrier();
  };
  GroupOptions options;
  options.executor.timeout = Seconds(20);
  for (const auto& outcomes : {run_tcp(2, body, options), run_shm(2, body, options)})
    for (const auto& text : outcomes) {
      CAPTURE(text);
      CHECK(contains(text, "the ranks disagree"));
      CHECK(contains(text, "for gradients"));
      CHECK(contains(text, "for activations"));
    }
}

TEST_CASE("a receive that nobody sends ends at the deadline, and the group with it") {
  GroupOptions options;
  options.executor.timeout = Seconds(1);
  const auto outcomes = run_tcp(
      2,
      [](ProcessGroup& group) {
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(3500));
          return;
        }
        Values values(8);
        const Work work = start_recv(group, values, 1);
        for (int times = 0; times < 2; ++times) {  // each wait throws
          std::string text;
          try {
            work.wait();
          } catch (const Error& error) {
            text = error.what();
          }
          require(contains(text, "nothing came to rank 0 from rank 1 for 1.0 s"), "{}", text);
        }
        start_send(group, values, 1).wait();
      },
      options);
  CHECK(contains(outcomes[0], "nothing came to rank 0 from rank 1 for 1.0 s"));
}

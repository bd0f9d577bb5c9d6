// Messages with tags, from any source, outside of the order of calls.
#include "collectives/messages.hpp"

#include <fmt/ranges.h>

#include <numeric>

#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Longer than what the kernel keeps of a connection: it moves only while the other rank takes it.
constexpr std::size_t long_message = 1'500'000;

std::vector<int> numbers(int first, std::size_t count) {
  std::vector<int> made(count);
  std::iota(made.begin(), made.end(), first);
  return made;
}

}  // namespace

TEST_CASE("two ranks that send to each other first do not deadlock, in any order of the calls") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      Messages messages(group);
      const int p = group.size(), rank = group.rank();
      for (const std::size_t count : {std::size_t(0), std::size_t(1), long_message}) {
        const auto mine = numbers(rank, count);
        std::vector<std::vector<int>> theirs(p, std::vector<int>(count, -1));
        std::vector<Work> sends, receives;
        const auto send_all = [&] {
          for (int r = 0; r < p; ++r)
            if (r != rank) sends.push_back(messages.send(std::span(mine), r, 7));
        };
        const auto receive_all = [&] {
          for (int r = 0; r < p; ++r)
            if (r != rank) receives.push_back(messages.recv(std::span(theirs[r]), r, 7));
        };
        if (rank % 2 == 0) {  // these wait for their sends before they expect anything
          send_all();
          for (const Work& each : sends) each.wait();
          receive_all();
        } else {
          receive_all();
          send_all();
        }
        for (const Work& each : receives) each.wait();
        for (const Work& each : sends) each.wait();
        for (int r = 0; r < p; ++r)
          require(r == rank || theirs[r] == numbers(r, count), "{} numbers of rank {} are wrong",
                  count, r);
      }
    });
}

TEST_CASE("a recv takes the first message with its tag, whatever came before") {
  on_every_transport(2, [](ProcessGroup& group) {
    Messages messages(group);
    std::vector<int> a = {1}, b = {2}, c = {3}, long_one = numbers(0, long_message);
    if (group.rank() == 0) {
      std::vector<Work> sends = {
          messages.send(std::span(a), 1, 5), messages.send(std::span(long_one), 1, -9),
          messages.send(std::span(b), 1, 6), messages.send(std::span(c), 1, 5)};
      for (const Work& each : sends) each.wait();  // nothing is expected yet
      group.barrier();
    } else {
      group.barrier();
      std::vector<int> six(1), five(1), five_again(1), whole(long_message);
      messages.recv(std::span(six), 0, 6).wait();
      const Work first = messages.recv(std::span(five), 0, 5);
      const Work second = messages.recv(std::span(five_again), Messages::any_source, 5);
      second.wait(), first.wait();
      messages.recv(std::span(whole), 0, -9).wait();
      require(six[0] == 2 && five[0] == 1 && five_again[0] == 3, "tag 6: {}, tag 5: {}, then {}",
              six[0], five[0], five_again[0]);
      require(whole == long_one, "the long message is wrong");
    }
    group.barrier();
  });
}

TEST_CASE("a recv from any source tells who sent, and each message is received once") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      Messages messages(group);
      const int p = group.size(), rank = group.rank();
      std::vector<std::int64_t> mine = {10, rank};
      if (rank != 0) {
        messages.send(std::span(mine), 0).wait();
      } else {
        std::vector<int> seen(p, 0);
        for (int i = 1; i < p; ++i) {
          std::vector<std::int64_t> theirs(2);
          const Work work = messages.recv(std::span(theirs), Messages::any_source);
          work.wait();
          require(theirs == std::vector<std::int64_t>{10, work.source()}, "{} from rank {}", theirs,
                  work.source());
          ++seen[work.source()];
        }
        for (int r = 1; r < p; ++r) require(seen[r] == 1, "rank {}: {} messages", r, seen[r]);
      }
      group.barrier();
    });
}

TEST_CASE("messages and collectives do not wait for each other") {
  for (const int size : {2, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      Messages messages(group);
      const int p = group.size(), rank = group.rank(), left = (rank + p - 1) % p;
      std::vector<int> late = {-1}, mine = {rank};
      const Work waiting = messages.recv(std::span(late), left, 1);
      for (int i = 0; i < 20; ++i) {  // the recv is under way all the time
        std::vector<int> one = {1};
        group.all_reduce(std::span(one));
        require(one[0] == p, "the sum of ones is {}", one[0]);
      }
      require(!waiting.wait_for(Seconds(0.001)), "a message came that nobody has sent");
      group.barrier();  // everybody has seen that
      const Work sent = messages.send(std::span(mine), (rank + 1) % p, 1);
      require(waiting.wait_for(Seconds(60)), "no message for a minute");
      require(late[0] == left && waiting.source() == left && sent.source() == -1,
              "{} from rank {}, and a send from {}", late[0], waiting.source(), sent.source());
      sent.wait();
      group.barrier();
    });
}

TEST_CASE("messages of sub-groups and of several Messages are apart, over an emulated link too") {
  GroupOptions options;
  options.link = parse_link("1Gbps,2ms");
  on_every_transport(
      4,
      [](ProcessGroup& group) {
        ProcessGroup half = group.split(group.rank() % 2);
        Messages inner(half), outer(group);
        Messages second(group);
        const int other = 1 - half.rank();
        std::vector<int> mine = {group.rank()}, a = {-1}, b = {-1}, c = {-1};
        const auto start = Clock::now();
        const Work works[] = {outer.recv(std::span(b), group.rank() ^ 1),
                              second.recv(std::span(c), group.rank() ^ 2),
                              inner.recv(std::span(a), other),
                              inner.send(std::span(mine), other),
                              second.send(std::span(mine), group.rank() ^ 2),
                              outer.send(std::span(mine), group.rank() ^ 1)};
        for (const Work& each : works) each.wait();
        require(
            a[0] == (group.rank() ^ 2) && b[0] == (group.rank() ^ 1) && c[0] == (group.rank() ^ 2),
            "rank {} received {}, {} and {}", group.rank(), a[0], b[0], c[0]);
        require(seconds_since(start) > 0.002, "the link's latency is 2 ms");
        group.barrier();
      },
      options);
}

TEST_CASE("a mismatch of type or count is told to both ranks, and ends all messages") {
  for (const auto& run : {run_tcp, run_shm}) {
    const auto outcome = run(
        2,
        [](ProcessGroup& group) {
          Messages messages(group);
          std::vector<int> two(2), three(3);
          if (group.rank() == 0)
            messages.send(std::span(three), 1, 4).wait();
          else
            messages.recv(std::span(two), 0, 4).wait();
          messages.recv(std::span(two), 1 - group.rank(), 5).wait();
        },
        GroupOptions());
    CAPTURE(outcome[0]);
    CHECK(contains(outcome[0],
                   "rank 1 expects 2 int32 with tag 4 from rank 0, which sends 3 int32: both ranks "
                   "must give the same type and count"));
    CHECK(outcome[1] ==
          "rank 1 expects 2 int32 with tag 4 from rank 0, which sends 3 int32: both ranks must "
          "give the same type and count");
  }
}

TEST_CASE("a recv from a rank that has left, and one that is closed, end with a sentence") {
  const auto outcome = run_tcp(
      3,
      [](ProcessGroup& group) {
        Messages messages(group);
        std::vector<int> one(1);
        if (group.rank() == 2) {
          const Work work = messages.recv(std::span(one), 0, 3);
          Messages moved = std::move(messages);
          { const Messages ended = std::move(moved); }
          return work.wait();
        }
        if (group.rank() == 1) messages.recv(std::span(one), 2).wait();
        if (group.rank() == 0) messages.recv(std::span(one), Messages::any_source).wait();
      },
      GroupOptions());
  CHECK(outcome[2] == "rank 2 has closed its messages while a recv waited");
  CHECK(contains(outcome[1], "rank 2 has left the group, and rank 1 still waits for it"));
  CHECK(contains(outcome[0], "rank 2 has left the group, and rank 1 still waits for it"));
}

TEST_CASE("abort ends the messages of all ranks with its cause, and wrong ranks are refused") {
  on_every_transport(3, [](ProcessGroup& group) {
    Messages messages(group);
    std::vector<int> one(1);
    if (group.rank() == 0) {
      CHECK_THROWS_WITH_AS(messages.send(std::span(one), 0),
                           "rank 0 can send messages to and receive them from the other ranks of 0 "
                           "to 2, not rank 0",
                           Error);
      CHECK_THROWS_AS(messages.send(std::span(one), Messages::any_source), Error);
      messages.abort("the test has seen enough");
    }
    std::string text;
    try {
      messages.recv(std::span(one), Messages::any_source).wait();
    } catch (const Error& error) {
      text = error.what();
    }
    require(contains(text, "the test has seen enough"), "the cause is \"{}\"", text);
    group.barrier();
  });
}

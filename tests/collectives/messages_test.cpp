// Messages with tags, from any source, outside of the order of calls.
#include "collectives/messages.hpp"

#include <fmt/ranges.h>

#include <condition_variable>
#include <cstdlib>
#include <numeric>

#include "base/trace/trace.hpp"
#include "collectives/diagnostics/flight_recorder.hpp"
#include "collectives/execution/traffic.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

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
      require(waiting.wait_for(Seconds(1e12)), "the wait of 30,000 years is over");
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

namespace {

GroupOptions with_timeout(double timeout, double warn_after = 0) {
  GroupOptions options;
  options.executor.timeout = Seconds(timeout);
  options.executor.warn_after = Seconds(warn_after);
  return options;
}

}  // namespace

TEST_CASE("a wait without a limit ends at the group's timeout, and names who does not answer") {
  for (const auto& run : {run_tcp, run_shm}) {
    const auto outcome = run(
        3,
        [](ProcessGroup& group) {
          Messages messages(group);
          std::vector<int> one(1);
          std::this_thread::sleep_for(Seconds(group.rank() == 1 ? 4 : 0));
          messages.recv(std::span(one), (group.rank() + 1) % 3, 7, "the answer").wait();
        },
        with_timeout(1.5));
    CAPTURE(outcome[0]);
    CAPTURE(outcome[1]);
    CAPTURE(outcome[2]);
    // Ranks 0 and 2 wait. Whoever fails first is believed by all.
    const char* const silent = "rank 1 does not answer: stopped, stuck, or busy outside of this ";
    for (const std::string& text : outcome) CHECK(contains(text, silent));
    for (const int waiting : {0, 2}) {
      const std::string next = std::to_string((waiting + 1) % 3);
      CHECK(contains(outcome[waiting],
                     fmt::format("[rank {} was in call #1 of sub-group messages1 (ranks 0,1,2 of "
                                 "the job), send/recv of 1 int32 from rank {} to rank {} for the "
                                 "answer, step 0 (of 0 to 0)]",
                                 waiting, next, waiting)));
    }
    CHECK((contains(outcome[0], "nothing came to rank 0 from rank 1 for 1.5 s") ||
           contains(outcome[0], "nothing came to rank 2 from rank 0 for 1.5 s")));
  }
}

TEST_CASE("a rank that only hears that it is to blame records nobody to blame") {
  const TemporaryDirectory directory;
  ::setenv("RINGSIDE_FLIGHT_DIR", directory.path().c_str(), 1);
  const auto outcome = run_tcp(
      2,
      [](ProcessGroup& group) {
        Messages messages(group);
        std::vector<int> one(1);
        if (group.rank() == 0) messages.recv(std::span(one), 1).wait();
        std::this_thread::sleep_for(Seconds(4));  // in another call, for all that rank 0 knows
      },
      with_timeout(1.5));
  ::unsetenv("RINGSIDE_FLIGHT_DIR");
  CHECK(contains(outcome[0], "rank 1 does not answer"));
  const auto flights = read_flights(directory.path());
  REQUIRE(flights.size() == 2);
  CHECK(flights[0].header.blamed == 1);
  CHECK(flights[1].header.blamed == -1);
  CHECK(contains(flights[1].header.cause, "rank 1 does not answer"));
  CHECK(contains(flights[1].header.cause, "(as rank 0 tells)"));
}

TEST_CASE("ranks that wait for each other's messages say so") {
  const auto outcome = run_tcp(
      2,
      [](ProcessGroup& group) {
        Messages messages(group);
        std::vector<int> one(1);
        messages.recv(std::span(one), 1 - group.rank(), group.rank()).wait();
      },
      with_timeout(1.5));
  CAPTURE(outcome[0]);
  CAPTURE(outcome[1]);
  const char* const both[] = {
      "nothing came to rank 0 from rank 1 for 1.5 s; rank 1 waits for rank 0 in step 0 of call #1",
      "nothing came to rank 1 from rank 0 for 1.5 s; rank 0 waits for rank 1 in step 0 of call #1"};
  for (const std::string& text : outcome)
    CHECK((contains(text, both[0]) || contains(text, both[1])));
}

TEST_CASE("a wait with a limit of its own has no other") {
  const auto outcome = run_tcp(
      2,
      [](ProcessGroup& group) {
        const int peer = 1 - group.rank();
        Messages messages(group);
        std::vector<int> late(1), here(1), mine = {group.rank()};
        const Work later = messages.recv(std::span(late), peer, 1);
        require(!later.wait_for(Seconds(1.5)), "a message came that nobody has sent");
        const Work sent = messages.send(std::span(mine), peer, 2);
        const Work work = messages.recv(std::span(here), peer, 2);
        require(work.wait_for(Seconds(60)) && here[0] == peer, "received {}", here[0]);
        require(sent.wait_for(Seconds(60)), "nothing has left for a minute");
        // The peer has waited, too. A rank that leaves would end what the other still expects.
        const Work last = messages.send(std::span(mine), peer, 1);
        require(later.wait_for(Seconds(60)) && late[0] == peer, "received {}", late[0]);
        require(last.wait_for(Seconds(60)), "nothing has left for a minute");
      },
      with_timeout(0.5));
  for (const std::string& text : outcome) CHECK(text == "");
}

TEST_CASE("a wait that lasts is warned of, and goes on") {
  std::mutex mutex;
  std::condition_variable warned;
  std::vector<std::string> warnings;
  GroupOptions options = with_timeout(60, 0.5);
  options.executor.warn = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    warnings.push_back(sentence);
    warned.notify_all();
  };
  const auto outcome = run_tcp(
      2,
      [&](ProcessGroup& group) {
        Messages messages(group);
        std::vector<int> one = {1};
        if (group.rank() == 0) return messages.recv(std::span(one), 1).wait();
        {
          std::unique_lock lock(mutex);
          warned.wait(lock, [&] { return !warnings.empty(); });
        }
        messages.send(std::span(one), 0).wait();
      },
      options);
  for (const std::string& text : outcome) CHECK(text == "");
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "rank 0 has waited for rank 1 for "));
  CHECK(contains(warnings[0], " s in call #1 of sub-group messages1"));
  CHECK(contains(warnings[0], "rank 1 does not answer"));
  CHECK(contains(warnings[1], "rank 0 went on after"));
}

TEST_CASE("messages are counted and traced, with their labels") {
  on_every_transport(2, [](ProcessGroup& group) {
    Messages messages(group);
    const int other = 1 - group.rank();
    std::vector<int> mine(1000), theirs(1000), none;
    Trace trace;
    {
      const Trace::On on(trace);
      const Work out = messages.send(std::span(mine), other, 3, "a thousand");
      const Work in = messages.recv(std::span(theirs), other, 3, "a thousand");
      messages.send(std::span(none), other, 4).wait();
      messages.recv(std::span(none), other, 4).wait();
      in.wait(), out.wait();
    }
    const Traffic traffic = messages.traffic();
    require(traffic.messages_sent == 2 && traffic.payload_bytes_sent == 4000,
            "{} messages of {} bytes", traffic.messages_sent, traffic.payload_bytes_sent);
    require(messages.times().calls == 4, "{} calls", messages.times().calls);
    int calls = 0, waits = 0, sent = 0, received = 0;
    for (const Trace::Span& span : trace.spans())
      if (span.about == "a thousand") {
        ++(span.kind == Trace::Kind::call ? calls : waits);
        require(span.kind == Trace::Kind::wait || span.bytes == 4000, "{} bytes", span.bytes);
      }
    for (const Trace::Message& message : trace.messages()) {
      ++(message.kind == Trace::Message::sent ? sent : received);
      require(message.peer == other, "a message to or from rank {}", message.peer);
    }
    require(calls == 2 && waits == 2 && sent == 2 && received == 2,
            "{} calls, {} waits, {} sent, {} received", calls, waits, sent, received);
    group.barrier();
  });
}

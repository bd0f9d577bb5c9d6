// Asynchronous calls: they run in order, many at a time, and keep their errors until wait().
#include <fmt/ranges.h>

#include "collectives/work.hpp"

#include <atomic>
#include <chrono>

#include "collectives/device_calls.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

TEST_CASE("many calls are under way while the caller computes, and they end in order") {
  for (const int size : {1, 2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      constexpr int calls = 50;
      std::vector<std::vector<float>> buffers(calls);
      std::vector<Work> works;
      for (int i = 0; i < calls; ++i) {
        buffers[i].assign(1000 + 100 * i, static_cast<float>(i + group.rank()));
        works.push_back(group.all_reduce_async(std::span(buffers[i])));
      }
      works[calls - 1].wait();
      for (int i = 0; i < calls; ++i) {
        require(works[i].done(), "call {} is not done though a later one is", i);
        works[i].wait();
        const int p = group.size();
        for (const float x : buffers[i])
          require(x == static_cast<float>(p * i + p * (p - 1) / 2), "call {} gave {}", i, x);
      }
    });
}

TEST_CASE("asynchronous collectives run in order") {
  on_every_transport(3, [](ProcessGroup& group) {
    const std::vector<int> input = {1, 2, 3, 4, 5, 6};
    std::vector<int> block(2), all(6);
    const Work scatter =
        group.reduce_scatter_async(std::span(input), std::span(block), ReduceOp::sum);
    // Reads what the call before it writes.
    const Work gather = group.all_gather_async(std::span(block), std::span(all));
    gather.wait();
    require(scatter.done(), "the first call is not done although the second one is");
    require(all == std::vector<int>{3, 6, 9, 12, 15, 18}, "{}", all);
  });
}

TEST_CASE("a blocking call runs after the calls that are under way") {
  on_every_transport(3, [](ProcessGroup& group) {
    std::vector<double> x(100000, 1.0);
    const Work first = group.all_reduce_async(std::span(x));
    group.all_reduce(std::span(x));
    require(first.done(), "the first call is not done although the second one is");
    require(x.front() == 9 && x.back() == 9, "{}", x.front());
  });
}

TEST_CASE("a call is done only after the last rank has made it") {
  std::atomic<int> looked = 0;  // ranks 0 and 2
  on_every_transport(3, [&](ProcessGroup& group) {
    std::vector<float> x(10, 1.0f);
    if (group.rank() == 1) {  // calls when the others have returned from their calls and looked
      const Deadline patience = Deadline::after(Seconds(20));
      while (looked < 2 && !patience.expired()) std::this_thread::yield();
      require(looked == 2, "starting a call took more than 20 s");
      looked = 0;
    }
    const Work work = group.all_reduce_async(std::span(x));
    if (group.rank() != 1) {
      const bool early = work.done();
      ++looked;
      require(!early, "done before rank 1 made the call");
    }
    work.wait();
    require(x[0] == 3, "{}", x[0]);
  });
}

TEST_CASE("wait() throws the error of the call, each time") {
  const auto outcomes = run_tcp(2, [](ProcessGroup& group) {
    std::vector<float> x(group.rank() == 0 ? 10 : 20);
    const Work work = group.all_reduce_async(std::span(x));
    while (!work.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int i = 0; i < 2; ++i) {
      bool thrown = false;
      try {
        work.wait();
      } catch (const Error& error) {
        thrown = contains(error.what(), "the ranks disagree: rank ");
      }
      require(thrown, "wait() did not throw the mismatch, time {}", i);
    }
    group.barrier();  // later calls throw it too
  });
  for (const auto& text : outcomes) CHECK(contains(text, "the ranks disagree: rank "));
}

TEST_CASE("abort ends the calls under way on every rank") {
  const auto start = Clock::now();
  std::atomic<bool> aborted = false;
  const auto body = [&](ProcessGroup& group) {
    std::vector<float> x(1000), y(1000);
    const Work first = group.all_reduce_async(std::span(x));
    first.wait();
    if (group.rank() == 0) {  // its call waits for rank 1, which is late
      const Work second = group.all_reduce_async(std::span(y));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.abort("rank 0 gave up: backward threw");
      aborted = true;
      second.wait();
    }
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.all_reduce(std::span(y));
  };
  GroupOptions ring;  // no rank finishes a ring before all have begun it
  ring.algorithms = AlgorithmSelection("all_reduce=ring");
  for (const auto& text : run_tcp(2, body, ring)) {
    CAPTURE(text);
    CHECK(contains(text, "rank 0 gave up: backward threw"));
  }
  CHECK(seconds_since(start) < 10);
}

TEST_CASE("the destructor of a group waits for its calls") {
  on_every_transport(3, [](ProcessGroup& group) {
    static std::vector<float> buffers[3];
    auto& x = buffers[group.rank()];
    x.assign(200000, 1.0f);
    group.all_reduce_async(std::span(x));
  });
}

TEST_CASE("times() separates the time that callers wait from the time that calls run") {
  std::atomic<int> calls = 0;  // of rank 0 that have begun to run, over all transports
  on_every_transport(2, [&](ProcessGroup& group) {
    std::vector<float> x(10, 1.0f);
    const int call = calls + 1;
    group.barrier();
    if (group.rank() == 0) {
      DeviceCalls device;  // whose fence shows that the call is running
      device.fence = [&calls, call] { return [&calls, call] { calls = call; }; };
      group.use_device(device);
    }
    const CallTimes before = group.times();
    if (group.rank() == 1) {
      while (calls < call) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
    const Work work = group.all_reduce_async(std::span(x));
    if (group.rank() == 0) {
      while (calls < call) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    work.wait();
    const CallTimes after = group.times();
    if (group.rank() != 0) return;
    require(after.running - before.running > 0.03, "the call ran for {} s",
            after.running - before.running);
    require(after.blocked - before.blocked < after.running - before.running,
            "rank 0 was blocked for {} s", after.blocked - before.blocked);
  });
}

TEST_CASE("a call waits for the fence of the moment when it was made") {
  for (const int size : {2, 3})
    on_every_transport(size, [](ProcessGroup& group) {
      // A device that computes its two tasks only when a fence waits for them.
      std::vector<float> x(1000, 0.0f), y(1000, 0.0f);
      std::atomic<int> fences = 0, given = 0;
      const auto caller = std::this_thread::get_id();
      DeviceCalls device;
      device.fence = [&] {
        require(std::this_thread::get_id() == caller, "the caller's thread must make the fence");
        ++fences;
        return [&x, &y, mine = given.load()] {
          if (mine == 1) std::fill(x.begin(), x.end(), 1.0f);
          if (mine == 2) std::fill(y.begin(), y.end(), 2.0f);
        };
      };
      group.use_device(device);
      given = 1;
      const Work first = group.all_reduce_async(std::span(x));
      given = 2;
      group.all_reduce(std::span(y));
      first.wait();
      require(fences == 2, "{} fences for two calls", fences.load());
      const float p = static_cast<float>(group.size());
      require(x.front() == p && x.back() == p, "{}", x.front());
      require(y.front() == 2 * p && y.back() == 2 * p, "{}", y.front());
      given = 0;
      group.barrier();
      require(fences == 3, "{} fences after a blocking call, expected 3", fences.load());
    });
}

TEST_CASE("every collective has an asynchronous form") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      const int p = group.size(), rank = group.rank(), root = p - 1;
      std::vector<int> told(3, rank), sum(3), mine(2, rank), all(2 * p), block(2), swapped(2 * p);
      const std::vector<int> to_each(2 * p, rank);
      const Work broadcast = group.broadcast_async(std::span(told), root);
      // Each reads what the call before it writes.
      const Work reduce = group.reduce_async(std::span(told), std::span(sum), root);
      const Work gather = group.gather_async(std::span(mine), std::span(all), root);
      const Work scatter = group.scatter_async(std::span(all), std::span(block), root);
      const Work exchange = group.all_to_all_async(std::span(to_each), std::span(swapped));
      group.barrier_async().wait();
      for (const Work& work : {broadcast, reduce, gather, scatter, exchange})
        require(work.done(), "a call is not done although the barrier after it is");
      require(told == std::vector<int>(3, root), "broadcast: {}", told);
      require(rank != root || sum == std::vector<int>(3, root * p), "reduce: {}", sum);
      require(block == mine, "gather and scatter: {}", block);
      for (int r = 0; r < p; ++r)
        require(swapped[2 * r] == r && swapped[2 * r + 1] == r, "all_to_all: {}", swapped);
    });
}

TEST_CASE("wait_for returns false while the call runs, and the call goes on") {
  on_every_transport(2, [](ProcessGroup& group) {
    ProcessGroup other = group.split(0);
    std::vector<int> x = {1}, go = {0};
    if (group.rank() == 1) {  // joins only when rank 0 has seen that the call is not done
      other.recv(std::span(go), 0);
      return group.all_reduce(std::span(x));
    }
    const Work work = group.all_reduce_async(std::span(x));
    require(!work.wait_for(Seconds(0.001)), "the call is done before rank 1 has made it");
    other.send(std::span(go), 1);
    require(work.wait_for(Seconds(60)) && x[0] == 2, "the sum is {}", x[0]);
  });
}

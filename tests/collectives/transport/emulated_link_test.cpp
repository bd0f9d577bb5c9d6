// The emulated link: its notation, the time of messages behind it, and unchanged results.
#include <fmt/ranges.h>

#include "collectives/transport/emulated_link.hpp"

#include <atomic>
#include <chrono>
#include <ctime>

#include "collectives/selection/calibration.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Upper bounds of times are those of a program at its own speed: a sanitizer slows what computes
// beside the wire.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double patience = 20;
#else
constexpr double patience = 1;
#endif

GroupOptions behind(const char* link) {
  GroupOptions options;
  options.link = parse_link(link);
  return options;
}

std::string error_of(const std::string& link) {
  try {
    parse_link(link);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The CPU time of the calling thread, in seconds.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The shortest of five calls: other processes may delay a call. A call takes from when its first
// rank begins until its last rank ends: a rank that leaves the barrier late sees a shorter one.
double quickest(ProcessGroup& group, const std::function<void()>& call) {
  const auto now = [] { return Seconds(Clock::now().time_since_epoch()).count(); };
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    group.barrier();
    double begin = now();
    call();
    double end = now();
    group.all_reduce(std::span(&begin, 1), ReduceOp::min);
    group.all_reduce(std::span(&end, 1), ReduceOp::max);
    least = std::min(least, end - begin);
  }
  return least;
}

}  // namespace

TEST_CASE("a link is written as a rate in bits and a latency") {
  CHECK(parse_link("1Gbps,50us").bytes_per_second == 125e6);
  CHECK(parse_link("1Gbps,50us").latency.count() == doctest::Approx(50e-6));
  CHECK(parse_link("100 Mbps, 2 ms").bytes_per_second == 12.5e6);
  CHECK(parse_link("100 Mbps, 2 ms").latency.count() == doctest::Approx(2e-3));
  CHECK(parse_link("2.5gbps,0.5s").latency.count() == 0.5);
  CHECK(parse_link("8Mbps").bytes_per_second == 1e6);
  CHECK(parse_link("8Mbps").latency.count() == 0);
  CHECK(to_text(parse_link("1Gbps,50us")) == "1 Gbps, 50 us");
  CHECK(to_text(parse_link("2500Mbps,1.5ms")) == "2.5 Gbps, 1.5 ms");
  CHECK(to_text(parse_link("8Mbps")) == "8 Mbps, 0 ns");
}

TEST_CASE("an invalid link is refused with a valid example") {
  for (const char* wrong : {"", "fast", "1GB/s", "1Gbps,50", "1,50us", "-1Gbps,50us", "nan Gbps",
                            "1Gbps,50us,3", "1e400Gbps"})
    CHECK_MESSAGE(error_of(wrong).find("is no link: 1Gbps,50us is one") != std::string::npos, wrong,
                  " gave: ", error_of(wrong));
  CHECK(error_of("900Kbps") ==
        "a link of 900Kbps is slower than 1 Mbps: a message could take longer than a rank waits "
        "for it");
  CHECK(error_of("0Gbps").find("slower than 1 Mbps") != std::string::npos);
  CHECK(error_of("1Gbps,11s") ==
        "a link of 1Gbps,11s is longer than 10 s: a message could take longer than a rank waits "
        "for it");
}

TEST_CASE("a wire carries one message after the other") {
  Wire wire(parse_link("8Mbps,1ms"));  // a byte takes a microsecond
  const Clock::time_point start{std::chrono::seconds(1)};
  const auto us = [&](Clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::microseconds>(at - start).count();
  };
  CHECK(us(wire.carry(100, start)) == 100);
  CHECK(us(wire.carry(50, start + std::chrono::microseconds(20))) == 150);  // after the first
  // Unused time of the wire does not count for later messages.
  CHECK(us(wire.carry(10, start + std::chrono::microseconds(400))) == 410);

  // The incoming wire is another one. A message alone is there when its last byte is.
  CHECK(us(wire.receive(100, start)) == 0);
  CHECK(us(wire.receive(50, start + std::chrono::microseconds(20))) == 50);  // behind the first
  CHECK(us(wire.receive(10, start + std::chrono::microseconds(400))) == 400);
}

TEST_CASE("a message takes its bytes divided by the rate, plus the latency") {
  static constexpr std::size_t bytes = 500'000;  // 40 ms at 100 Mbps
  on_every_transport(
      2,
      [](ProcessGroup& group) {
        std::vector<std::uint8_t> data(bytes, static_cast<std::uint8_t>(group.rank() + 7));
        const double least = quickest(group, [&] {
          if (group.rank() == 0) group.send(std::span(data), 1);
          if (group.rank() == 1) group.recv(std::span(data), 0);
        });
        require(data[0] == 7 && data[bytes - 1] == 7, "the bytes are {} and {}", data[0],
                data[bytes - 1]);
        require(least >= 0.040, "{} bytes took {:.4f} s", bytes, least);
        require(least < patience * 3 * 0.045, "{} bytes took {:.4f} s", bytes, least);
      },
      behind("100Mbps,5ms"));
}

TEST_CASE("messages that come at once from two ranks share the receiver's wire") {
  static constexpr std::size_t bytes = 250'000;  // 20 ms at 100 Mbps
  on_every_transport(
      3,
      [](ProcessGroup& group) {
        const std::vector<std::uint8_t> block(bytes, static_cast<std::uint8_t>(group.rank()));
        std::vector<std::uint8_t> all(group.rank() == 0 ? 3 * bytes : 0);
        const double least =
            quickest(group, [&] { group.gather(std::span(block), std::span(all), 0); });
        require(group.rank() != 0 || (all[bytes] == 1 && all.back() == 2), "the blocks are wrong");
        require(least >= 0.039, "two blocks of 20 ms took {:.4f} s", least);
        require(least < patience * 3 * 0.045, "two blocks of 20 ms took {:.4f} s", least);
      },
      behind("100Mbps,50us"));
}

TEST_CASE("an empty message takes the latency") {
  on_every_transport(
      2,
      [](ProcessGroup& group) {
        const double least = quickest(group, [&] { group.barrier(); });
        // Both ranks left the barrier before at almost the same time.
        require(least >= 0.009, "a barrier took {:.4f} s", least);
        require(least < patience * 0.05, "a barrier took {:.4f} s", least);
      },
      behind("1Gbps,10ms"));
}

TEST_CASE("the latencies of messages to several ranks overlap") {
  on_every_transport(
      4,
      [](ProcessGroup& group) {
        group.set_algorithms(AlgorithmSelection("all_reduce=one_shot"));
        int ranks = 0;
        const double least = quickest(group, [&] {
          ranks = 1;
          group.all_reduce(std::span(&ranks, 1));
        });
        require(ranks == 4, "{} ranks added 1 each", ranks);
        require(least >= 0.099, "three messages from each rank took {:.4f} s", least);
        require(least < patience * 0.19, "three messages from each rank took {:.4f} s", least);
      },
      behind("1Gbps,100ms"));
}

TEST_CASE("both directions work at the same time and the results are right") {
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          constexpr std::size_t count = 250'001;
          const int p = group.size();
          std::vector<float> data(count);
          const double least = quickest(group, [&] {
            for (std::size_t i = 0; i < count; ++i)
              data[i] = static_cast<float>(i % 97) + static_cast<float>(group.rank());
            group.all_reduce(std::span(data));
            for (std::size_t i = 0; i < count; ++i) {
              const float wanted = static_cast<float>(i % 97) * static_cast<float>(p) +
                                   static_cast<float>(p * (p - 1) / 2);
              require(data[i] == wanted, "element {} is {} instead of {}", i, data[i], wanted);
            }
          });
          // 2 (p-1) messages of n / p bytes in each direction. One direction after the other would
          // take twice as long.
          const double formula = 2.0 * (p - 1) * (200e-6 + 4.0 * count / p / 12.5e6);
          require(least >= 0.95 * formula, "took {:.4f} s, the formula says {:.4f} s", least,
                  formula);
          require(least < patience * 3 * formula, "took {:.4f} s, the formula says {:.4f} s", least,
                  formula);
        },
        behind("100Mbps,200us"));
}

TEST_CASE("a rank sleeps while its wire is busy") {
  on_every_transport(
      2,
      [](ProcessGroup& group) {
        std::vector<float> data(250'000, 1);
        group.all_reduce(std::span(data));
        const double computed_before = thread_seconds();
        const auto start = Clock::now();
        group.all_reduce(std::span(data));
        const double took = seconds_since(start), computed = thread_seconds() - computed_before;
        require(took > 0.075, "took {:.4f} s", took);  // 1 MB at 100 Mbps
        require(computed < patience * took / 3, "computed for {:.4f} s of {:.4f} s", computed,
                took);
      },
      behind("100Mbps,50us"));
}

TEST_CASE("computation goes on while a call is under way behind a link") {
  on_every_transport(
      2,
      [](ProcessGroup& group) {
        std::vector<float> data(500'000, 1);  // 2 MB at 200 Mbps: 80 ms
        const double both = quickest(group, [&] {
          std::fill(data.begin(), data.end(), 1.0f);
          const Work work = group.all_reduce_async(std::span(data));
          std::this_thread::sleep_for(std::chrono::milliseconds(80));
          work.wait();
          require(data[0] == 2 && data.back() == 2, "{} and {}", data[0], data.back());
        });
        // One after the other they would take 0.16 s.
        require(both >= 0.08 && both < patience * 0.14,
                "call and computation took {:.4f} s together", both);
      },
      behind("200Mbps,50us"));
}

TEST_CASE("sub-groups share the wire of their rank") {
  on_every_transport(
      2,
      [](ProcessGroup& group) {
        ProcessGroup other = group.split(0);
        std::vector<float> a(125'000, 1), b(125'000, 1);  // 0.5 MB each, at 100 Mbps: 40 ms each
        const double both = quickest(group, [&] {
          const Work first = group.all_reduce_async(std::span(a)),
                     second = other.all_reduce_async(std::span(b));
          first.wait(), second.wait();
        });
        require(both >= 0.078, "both took {:.4f} s", both);
        require(both < patience * 0.24, "both took {:.4f} s", both);
      },
      behind("100Mbps,50us"));
}

TEST_CASE("results and traffic are the same behind a link") {
  on_every_transport(
      3,
      [](ProcessGroup& group) {
        const std::vector<int> input = {1, 2, 3, 4, 5, 6};
        std::vector<int> block(2), all(6), sent(4, group.rank()), swapped(6);
        group.reduce_scatter(std::span(input), std::span(block));
        group.all_gather(std::span(block), std::span(all));
        group.broadcast(std::span(sent), 2);
        group.all_to_all(std::span(input), std::span(swapped));
        require(all == std::vector<int>{3, 6, 9, 12, 15, 18}, "{}", all);
        require(sent == std::vector<int>{2, 2, 2, 2}, "{}", sent);
        const int r = 2 * group.rank();
        require(swapped == std::vector<int>{r + 1, r + 2, r + 1, r + 2, r + 1, r + 2}, "{}",
                swapped);
        const auto before = group.traffic();
        std::vector<float> data(30'000);
        group.set_algorithms(AlgorithmSelection("all_reduce=ring"));
        group.all_reduce(std::span(data));
        const auto sent_bytes = group.traffic().payload_bytes_sent - before.payload_bytes_sent;
        require(sent_bytes == 2 * 2 * 40'000, "{} bytes were sent", sent_bytes);
      },
      behind("10Gbps,20us"));
}

TEST_CASE("ranks behind a link learn that they disagree") {
  const auto outcome = run_tcp(
      2,
      [](ProcessGroup& group) {
        std::vector<float> data(group.rank() == 0 ? 10 : 20);
        group.all_reduce(std::span(data));
      },
      behind("1Gbps,50us"));
  for (const auto& text : outcome)
    CHECK_MESSAGE(text.find("of 20 fp32") != std::string::npos, text);
}

TEST_CASE("ranks behind a link name a rank that has left") {
  const auto outcome = run_shm(
      3,
      [](ProcessGroup& group) {
        std::vector<float> data(100'000);
        if (group.rank() == 2) throw Error("enough");
        group.all_reduce(std::span(data));
      },
      behind("100Mbps,1ms"));
  CHECK(outcome[2] == "enough");
  for (const int rank : {0, 1})
    CHECK_MESSAGE(outcome[rank].find("rank 2") != std::string::npos, outcome[rank]);
}

TEST_CASE("the algorithm is chosen for the link") {
  const MachineCosts costs = costs_here("shm");
  const MachineCosts slowed = behind_link(costs, parse_link("1Gbps,50us"));
  CHECK(slowed.common.alpha == doctest::Approx(costs.common.alpha + 50e-6));
  CHECK(slowed.at(1'000'000).beta == doctest::Approx(costs.at(1'000'000).beta + 8e-9));
  AlgorithmSelection selection;
  selection.set_costs(slowed);
  // Both messages and bytes cost much: small buffers need few messages, large ones few bytes.
  CHECK(selection.choose(Collective::all_reduce, 1, DataType::fp32, 4).name != "ring");
  const auto& large = selection.choose(Collective::all_reduce, 10'000'000, DataType::fp32, 4);
  CHECK(cost_of(large, 4, 40'000'000, slowed.at(40'000'000)).sent[0].bytes <=
        2 * 40'000'000 * 3 / 4 + 64);
}

// `ringside hello`: runs each collective on small numbers and prints them before and after.
#include <algorithm>
#include <memory>
#include <thread>

#include "base/random.hpp"
#include "cli/command.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/report/numbers.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using Numbers = std::vector<std::int32_t>;

constexpr std::int32_t nothing = -1;  // an element that a rank does not get; numbers are >= 0

struct HelloOptions {
  RanksOption ranks{.count = {}, .otherwise = 4};
  std::uint64_t seed = 1;
};

// The numbers of all ranks, for rank 0 to print: element r is rank r's. Equal lengths on all ranks.
std::vector<Numbers> from_all_ranks(ProcessGroup& group, const Numbers& mine) {
  Numbers all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span(mine), std::span(all));
  std::vector<Numbers> by_rank;
  for (auto begin = all.begin(); begin != all.end();
       begin += static_cast<std::ptrdiff_t>(mine.size()))
    by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
  return by_rank;
}

std::string to_text(const Numbers& numbers) {
  std::string text;
  for (const auto x : numbers) text += x == nothing ? "   -" : fmt::format("{:>4}", x);
  return text;
}

class Hello {
 public:
  Hello(ProcessGroup& group, std::uint64_t seed) : group_(group), seed_(seed) {}

  void run() {
    const auto p = static_cast<std::size_t>(group_.size());
    if (prints())
      fmt::print("{} over {}. Each collective on small whole numbers:\n",
                 counted(group_.size(), "rank"), group_.backend_name());
    show_reductions();
    show_moves();
    if (p > 1) show_send();
    show_split();
    show_barrier();
  }

 private:
  void show_reductions() {
    const auto p = static_cast<std::size_t>(group_.size());
    const Numbers mine = draw(p);
    show(
        "all_reduce", "every rank gets the sum", mine,
        [&](const Numbers& before) {
          Numbers after = before;
          group_.all_reduce(std::span(after));
          return after;
        },
        [&](int) { return sum_of_all(p); });
    show(
        "reduce_scatter", "rank r gets element r of the sum", mine,
        [&](const Numbers& before) {
          Numbers after(1);
          group_.reduce_scatter(std::span(before), std::span(after));
          return after;
        },
        [&](int rank) { return Numbers{sum_of_all(p)[static_cast<std::size_t>(rank)]}; });
    show(
        "reduce", "rank 0 gets the sum, the others keep what they have", mine,
        [&](const Numbers& before) {
          Numbers after = before;
          group_.reduce(std::span(before), std::span(after), 0);
          return after;
        },
        [&](int rank) { return rank == 0 ? sum_of_all(p) : drawn_by(rank, p); });
  }

  void show_moves() {
    const auto p = static_cast<std::size_t>(group_.size());
    const Numbers one = draw(1), mine = draw(p);
    const int root = group_.size() - 1;
    show(
        "all_gather", "every rank gets the numbers of all ranks", one,
        [&](const Numbers& before) {
          Numbers after(p);
          group_.all_gather(std::span(before), std::span(after));
          return after;
        },
        [&](int) { return of_each_rank(0); });
    show(
        "broadcast", fmt::format("every rank gets the numbers of rank {}", root), mine,
        [&](const Numbers& before) {
          Numbers after = before;
          group_.broadcast(std::span(after), root);
          return after;
        },
        [&](int) { return drawn_by(root, p); });
    show(
        "gather", "rank 0 gets the numbers of all ranks", one,
        [&](const Numbers& before) {
          Numbers after(p, nothing);
          group_.gather(std::span(before), std::span(after), 0);
          return after;
        },
        [&](int rank) { return rank == 0 ? of_each_rank(0) : Numbers(p, nothing); });
    show(
        "scatter", fmt::format("rank r gets element r of rank {}", root), mine,
        [&](const Numbers& before) {
          Numbers after(1);
          group_.scatter(std::span(before), std::span(after), root);
          return after;
        },
        [&](int rank) { return Numbers{number(root, static_cast<std::size_t>(rank))}; });
    show(
        "all_to_all", "rank r gets element r of every rank", mine,
        [&](const Numbers& before) {
          Numbers after(p);
          group_.all_to_all(std::span(before), std::span(after));
          return after;
        },
        [&](int rank) { return of_each_rank(static_cast<std::size_t>(rank)); });
  }

  void show_send() {
    show(
        "send, recv", "rank 1 gets the number of rank 0; no other rank takes part", draw(1),
        [&](const Numbers& before) {
          Numbers after = before;
          if (group_.rank() == 0) group_.send(std::span(before), 1);
          if (group_.rank() == 1) group_.recv(std::span(after), 0);
          return after;
        },
        [&](int rank) { return Numbers{number(rank == 1 ? 0 : rank, 0)}; });
  }

  void show_split() {
    ProcessGroup part = group_.split(group_.rank() % 2);
    show(
        "split", "even ranks form one group, odd ranks another; all_reduce in each group", draw(1),
        [&](const Numbers& before) {
          Numbers after = before;
          part.all_reduce(std::span(after));
          return after;
        },
        [&](int rank) {
          Numbers sum{0};
          for (int r = rank % 2; r < group_.size(); r += 2) sum[0] += number(r, 0);
          return sum;
        });
  }

  bool prints() const { return group_.rank() == 0; }
  std::int32_t number(int rank, std::size_t i) const {
    return static_cast<std::int32_t>(random_below(10, seed_, static_cast<std::uint64_t>(rank), i));
  }
  Numbers drawn_by(int rank, std::size_t count) const {
    Numbers numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = number(rank, i);
    return numbers;
  }
  Numbers of_each_rank(std::size_t i) const {
    Numbers numbers;
    for (int r = 0; r < group_.size(); ++r) numbers.push_back(number(r, i));
    return numbers;
  }
  Numbers draw(std::size_t count) const { return drawn_by(group_.rank(), count); }
  Numbers sum_of_all(std::size_t count) const {
    Numbers sum(count, 0);
    for (int r = 0; r < group_.size(); ++r)
      for (std::size_t i = 0; i < count; ++i) sum[i] += number(r, i);
    return sum;
  }

  template <class Run, class Expected>
  void show(const std::string& name, const std::string& promise, const Numbers& before, Run run,
            Expected expected) {
    const Numbers after = run(before);
    const auto all_before = from_all_ranks(group_, before),
               all_after = from_all_ranks(group_, after);
    if (prints()) {
      const std::size_t width = std::max<std::size_t>(8, 4 * before.size() + 2);
      fmt::print("\n{}: {}\n  {:<8}{:<{}}    after\n", name, promise, "", "before", width);
      for (std::size_t r = 0; r < all_after.size(); ++r)
        fmt::print("  {:<8}{:<{}}  {}\n", fmt::format("rank {}", r), to_text(all_before[r]), width,
                   to_text(all_after[r]));
    }
    const Numbers wanted = expected(group_.rank());
    require(after == wanted, "{} on rank {} gave{}, but{} is right", name, group_.rank(),
            to_text(after), to_text(wanted));
  }

  // The ranks arrive at the barrier up to 20 ms apart, in half a second, and leave it together.
  void show_barrier() {
    const int apart_ms = std::clamp(500 / group_.size(), 1, 20);
    group_.barrier();
    const auto start = Clock::now();
    const auto elapsed = [&] { return static_cast<std::int32_t>(seconds_since(start) * 1e3); };
    std::this_thread::sleep_for(std::chrono::milliseconds(apart_ms * group_.rank()));
    const std::int32_t arrived = elapsed();
    group_.barrier();
    const auto times = from_all_ranks(group_, {arrived, elapsed()});
    if (!prints()) return;
    fmt::print("\nbarrier: no rank leaves before every rank has arrived\n");
    for (std::size_t r = 0; r < times.size(); ++r)
      fmt::print("  rank {}  arrived after {:>4} ms, left after {:>4} ms\n", r, times[r][0],
                 times[r][1]);
  }

  ProcessGroup& group_;
  std::uint64_t seed_;
};

}  // namespace

void add_hello_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "hello", "Run each collective on small numbers and print them before and after");
  const auto options = std::make_shared<HelloOptions>();
  add_ranks_option(*command, options->ranks);
  add_link_option(*command);
  add_backend_option(*command, options->ranks);
  command->add_option("--seed", options->seed, "Seed of the numbers")
      ->type_name("N")
      ->capture_default_str();
  command->callback([options] {
    run_on_ranks(options->ranks, [&](ProcessGroup& group, int) {
      Hello(group, options->seed).run();
      group.finish();
    });
  });
}

}  // namespace ringside::cli

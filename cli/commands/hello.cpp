// `ringside hello`: runs each collective on small numbers and prints them before and after.
#include <algorithm>
#include <thread>

#include <unistd.h>

#include "base/random.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/options/rank_options.hpp"
#include "cli/pictures/numbers.hpp"
#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/ranks/rank_printer.hpp"

namespace ringside::cli {
namespace {

using collectives::ProcessGroup;
using collectives::RankInfo;
using Numbers = std::vector<std::int32_t>;
using In = std::span<const std::int32_t>;
using Out = std::span<std::int32_t>;

constexpr std::int32_t nothing = -1;  // an element that a rank does not get; numbers are >= 0

struct HelloOptions {
  RanksOption ranks{.count = {}, .otherwise = 4};
  std::uint64_t seed = 1;
  bool as_it_comes = false;
};

std::string to_text(const Numbers& numbers) {
  std::string text;
  for (const auto x : numbers) text += x == nothing ? "   -" : fmt::format("{:>4}", x);
  return text;
}

class Hello {
 public:
  // `place` is this rank's among those of its node.
  Hello(ProcessGroup& group, const HelloOptions& args, const RankInfo& place)
      : group_(group), print_(group, args.as_it_comes), seed_(args.seed), place_(place) {}

  void run() {
    if (prints())
      fmt::print("{} over {}. Each collective on small whole numbers:\n",
                 counted(group_.size(), "rank"), group_.backend_name());
    show_reductions();
    show_moves();
    if (group_.size() > 1) show_send();
    show_split();
    show_barrier();
    show_places();
  }

 private:
  void show_reductions() {
    const Numbers mine = draw(ranks()), sum = sum_of_all(ranks());
    show("all_reduce", "every rank gets the sum", mine, mine, sum,
         [&](In, Out after) { group_.all_reduce(after); });
    show("reduce_scatter", "rank r gets element r of the sum", mine, Numbers(1), {sum[me()]},
         [&](In before, Out after) { group_.reduce_scatter(before, after); });
    show("reduce", "rank 0 gets the sum, the others keep what they have", mine, mine,
         prints() ? sum : mine, [&](In before, Out after) { group_.reduce(before, after, 0); });
  }

  void show_moves() {
    const Numbers one = draw(1), mine = draw(ranks()), space(ranks(), nothing);
    const int root = group_.size() - 1;
    show("all_gather", "every rank gets the numbers of all ranks", one, space, of_each_rank(0),
         [&](In before, Out after) { group_.all_gather(before, after); });
    show("broadcast", fmt::format("every rank gets the numbers of rank {}", root), mine, mine,
         drawn_by(root, ranks()), [&](In, Out after) { group_.broadcast(after, root); });
    show("gather", "rank 0 gets the numbers of all ranks", one, space,
         prints() ? of_each_rank(0) : space,
         [&](In before, Out after) { group_.gather(before, after, 0); });
    show("scatter", fmt::format("rank r gets element r of rank {}", root), mine, Numbers(1),
         {number(root, me())}, [&](In before, Out after) { group_.scatter(before, after, root); });
    show("all_to_all", "rank r gets element r of every rank", mine, space, of_each_rank(me()),
         [&](In before, Out after) { group_.all_to_all(before, after); });
  }

  void show_send() {
    const Numbers mine = draw(1);
    show("send, recv", "rank 1 gets the number of rank 0; no other rank takes part", mine, mine,
         group_.rank() == 1 ? drawn_by(0, 1) : mine, [&](In before, Out after) {
           if (group_.rank() == 0) group_.send(before, 1);
           if (group_.rank() == 1) group_.recv(after, 0);
         });
  }

  void show_split() {
    ProcessGroup part = group_.split(group_.rank() % 2);
    Numbers sum{0};
    for (int r = group_.rank() % 2; r < group_.size(); r += 2) sum[0] += number(r, 0);
    show("split", "even ranks form one group, odd ranks another; all_reduce in each group", draw(1),
         draw(1), sum, [&](In, Out after) { part.all_reduce(after); });
  }

  std::size_t ranks() const { return static_cast<std::size_t>(group_.size()); }
  std::size_t me() const { return static_cast<std::size_t>(group_.rank()); }
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

  // Runs a collective from `before` into `after`, and prints both. Throws Error if this rank does
  // not get the numbers that are right.
  template <class Run>
  void show(const std::string& name, const std::string& promise, const Numbers& before,
            Numbers after, const Numbers& right, Run run) {
    run(In(before), Out(after));
    const std::size_t width = std::max<std::size_t>(8, 4 * before.size() + 2);
    print_lines(name, fmt::format("{}\n  {:<8}{:<{}}    after", promise, "", "before", width),
                fmt::format("{:<{}}  {}", to_text(before), width, to_text(after)));
    require(after == right, "{} on rank {} gave{}, but{} is right", name, group_.rank(),
            to_text(after), to_text(right));
  }

  // A heading and a line of each rank; as it comes, each line by itself.
  void print_lines(const std::string& name, const std::string& heading, const std::string& line) {
    if (print_.as_it_comes()) return print_("  rank {:<3}{:<16}{}\n", group_.rank(), name, line);
    if (prints()) fmt::print("\n{}: {}\n", name, heading);
    print_("  rank {:<3}{}\n", group_.rank(), line);
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
    print_lines("barrier", "no rank leaves before every rank has arrived",
                fmt::format("arrived after {:>4} ms, left after {:>4} ms", arrived, elapsed()));
  }

  // The same ranks in torchrun's words.
  void show_places() {
    char node[64] = {};
    ::gethostname(node, sizeof node - 1);
    print_lines(
        "places",
        fmt::format("each rank is a worker of a node, which is a machine; the world size is {}",
                    group_.size()),
        fmt::format("node {}, local rank {}, local world size {}", node, place_.local_rank,
                    place_.local_size));
  }

  ProcessGroup& group_;
  collectives::RankPrinter print_;
  std::uint64_t seed_;
  RankInfo place_;
};

void hello(const HelloOptions& args) {
  collectives::load_algorithms();
  run_on_ranks(args.ranks, [&](ProcessGroup& group, int) {
    RankInfo place = collectives::rank_info_from_environment();
    if (args.ranks.backend == "threads")
      place.local_rank = group.rank(), place.local_size = group.size();
    Hello(group, args, place).run();
    group.finish();
  });
}

}  // namespace

void add_hello_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "hello", "Run each collective on small numbers and print them before and after", hello);
  add_ranks_option(option, args.ranks);
  add_link_option(option);
  add_algorithm_option(option);
  add_backend_option(option, args.ranks.backend);
  option("--seed N", args.seed, "Seed of the numbers").show_default();
  option.flag("--as-it-comes", args.as_it_comes,
              "Let each rank print its own lines at once [rank 0 prints those of all, in order]");
}

}  // namespace ringside::cli

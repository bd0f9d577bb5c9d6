// The collectives that everything else is made of: what each rank holds before and after.
//
//     ringside launch -n 4 -- build/release/bin/collective_operations
//     gdb --args build/release/bin/collective_operations --threads
#include <span>
#include <vector>

#include <fmt/ranges.h>

#include "base/random.hpp"
#include "collectives/ranks/run_ranks.hpp"
#include "collectives/selection/algorithm_selection.hpp"

using namespace ringside;
using namespace ringside::collectives;

using Numbers = std::vector<float>;

// A number for each rank. On four ranks rank 0 has 0 1 2 3, rank 1 has 1 2 3 4.
Numbers numbers_of(const ProcessGroup& group) {
  Numbers numbers;
  for (int i = 0; i < group.size(); ++i) numbers.push_back(static_cast<float>(group.rank() + i));
  return numbers;
}

// Every rank gets the sum of all ranks' numbers.
void show_all_reduce(ProcessGroup& group, const RankPrinter& print) {
  Numbers data = numbers_of(group);
  print("rank {}  before all_reduce      {}\n", group.rank(), data);
  group.all_reduce(std::span(data), ReduceOp::sum);
  print("rank {}  after  all_reduce      {}\n", group.rank(), data);
}

// Rank r gets element r of the sum.
Numbers show_reduce_scatter(ProcessGroup& group, const RankPrinter& print) {
  const Numbers input = numbers_of(group);
  Numbers output(1);
  print("rank {}  before reduce_scatter  {}\n", group.rank(), input);
  group.reduce_scatter(std::span(input), std::span(output), ReduceOp::sum);
  print("rank {}  after  reduce_scatter  {}\n", group.rank(), output);
  return output;
}

// Every rank gets what each rank has.
void show_all_gather(const Numbers& input, ProcessGroup& group, const RankPrinter& print) {
  Numbers output(input.size() * static_cast<std::size_t>(group.size()));
  print("rank {}  before all_gather      {}\n", group.rank(), input);
  group.all_gather(std::span(input), std::span(output));
  print("rank {}  after  all_gather      {}\n", group.rank(), output);
}

// An all-reduce is a reduce-scatter and then an all-gather. So is the ring's, step by step: it adds
// in the same order, and the results have the same bits. Another algorithm may add in another
// order, and then the last bits of such numbers differ.
void show_two_halves(ProcessGroup& group, const RankPrinter& print) {
  group.set_algorithms(AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring"));
  Numbers mine(4096), whole(mine.size() * static_cast<std::size_t>(group.size()));
  for (std::size_t i = 0; i < whole.size(); ++i)
    whole[i] = static_cast<float>(random_normal(1, static_cast<std::uint64_t>(group.rank()), i));
  Numbers halves(whole.size());
  group.reduce_scatter(std::span(whole), std::span(mine), ReduceOp::sum);
  group.all_gather(std::span(mine), std::span(halves));
  group.all_reduce(std::span(whole), ReduceOp::sum);
  print("rank {}  all_reduce and reduce_scatter + all_gather of {} numbers: {} bits\n",
        group.rank(), whole.size(), whole == halves ? "the same" : "other");
}

int main(int count, char** arguments) {
  return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
    show_all_reduce(group, print);
    const Numbers shares = show_reduce_scatter(group, print);
    show_all_gather(shares, group, print);
    show_two_halves(group, print);
  });
}

// Judges a cross-entropy whose logits are divided by columns: losses and gradients against plain
// loops over whole rows in fp64, and what travels.
#include <cmath>

#include "exercises/25-vocab-cross-entropy/interface.hpp"
#include "exercises/judge/collectives/recorded_calls.hpp"
#include "exercises/judge/tensor_parallel/divided_tensors.hpp"
#include "parallel/tensor/vocabulary.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

constexpr std::int32_t ignore_index = -100;

// The logits of a few tokens, the same on all ranks, before they are divided.
struct Problem {
  std::string name;
  Tensor z;  // [tokens, V]
  std::vector<std::int32_t> targets;
  double weight = 0.125;
  std::int64_t tokens() const { return z.size(0); }
  std::int64_t vocabulary() const { return z.size(1); }
};

enum class Kind { plain, uneven, large, ignored };

template <Kind kind>
Problem problem(int ranks, std::uint64_t seed) {
  const std::int64_t tokens = 2 * ranks, vocabulary = 4 * ranks + (kind == Kind::uneven ? 1 : 0);
  Problem made{fmt::format("V = {}", vocabulary), numbers({tokens, vocabulary}, seed, "z"), {}};
  if (kind == Kind::large)
    for (double& each : made.z.values<double>()) each *= 1e4;
  for (std::int64_t t = 0; t < tokens; ++t)  // every shard has a target, and the last column
    made.targets.push_back(static_cast<std::int32_t>((5 * t + vocabulary - 1) % vocabulary));
  if (kind == Kind::ignored)
    for (std::size_t t = 0; t < made.targets.size(); t += 3) made.targets[t] = ignore_index;
  return made;
}

// Plain loops. `columns` is the whole row, or with one rank's columns what that rank sees alone.
struct Expected {
  std::vector<double> losses, dz;  // [tokens], [tokens, columns]
};
Expected expected_of(const Problem& of, std::int64_t first, std::int64_t columns) {
  Expected expected;
  for (std::int64_t t = 0; t < of.tokens(); ++t) {
    const double* const row = of.z.values<double>().data() + t * of.vocabulary() + first;
    const std::int64_t target = of.targets[static_cast<std::size_t>(t)] - first;
    const bool counts = of.targets[static_cast<std::size_t>(t)] != ignore_index;
    double largest = row[0], total = 0;
    for (std::int64_t v = 0; v < columns; ++v) largest = std::max(largest, row[v]);
    for (std::int64_t v = 0; v < columns; ++v) total += std::exp(row[v] - largest);
    const double chosen = target >= 0 && target < columns ? row[target] : 0;
    expected.losses.push_back(counts ? std::log(total) + largest - chosen : 0);
    for (std::int64_t v = 0; v < columns; ++v)
      expected.dz.push_back(
          counts ? of.weight * (std::exp(row[v] - largest) / total - (v == target ? 1 : 0)) : 0);
  }
  return expected;
}

// Columns `first` to `first + columns - 1` of dz.
std::vector<double> columns_of(const std::vector<double>& dz, std::int64_t tokens,
                               std::int64_t first, std::int64_t columns) {
  const Tensor whole = Tensor::from(dz, {tokens, static_cast<std::int64_t>(dz.size()) / tokens});
  return values(whole.narrow(1, first, columns));
}

// JSON has no infinite numbers and no NaN: they arrive as null.
std::vector<double> numbers_in(const Json& list) {
  std::vector<double> read;
  for (const Json& each : list) read.push_back(each.is_null() ? NAN : each.get<double>());
  return read;
}

Json run_student(World& world, const Problem& of) {
  collectives::ProcessGroup& group = world.group();
  const VocabularyRange range = tensor_parallel::vocabulary_range(of.vocabulary(), group);
  const Tensor z = part(of.z, 1, world.size(), world.rank());
  const Tensor losses = Tensor::zeros({of.tokens()}, DType::fp64),
               targets = Tensor::from(of.targets, {of.tokens()});
  world.doing("the losses of " + of.name);
  const Tensor here = student_targets(targets, range, z.size(1), ignore_index);
  const Json calls = calls_of(world, [&] {
    student_losses(z, here, of.weight, tensor_parallel::GroupStatistics(group, "head"), losses);
  });
  return {{"losses", values(losses)}, {"dz", values(z)}, {"calls", calls}};
}

template <Kind kind>
Json collect(World& world) {
  return run_student(world, problem<kind>(world.size(), world.seed()));
}

template <Kind kind>
Verdict judge_numbers(const Run& run) {
  const Problem of = problem<kind>(run.world, run.seed);
  const Expected whole = expected_of(of, 0, of.vocabulary());
  std::int64_t first = 0;
  for (int rank = 0; rank < run.world; ++rank) {
    const std::int64_t columns = part(of.z, 1, run.world, rank).size(1);
    const Expected alone = expected_of(of, first, columns);
    const Json& seen = run.ranks[rank];
    for (const std::string& found :
         {fault_of("losses", numbers_in(seen.at("losses")), whole.losses, alone.losses, run.world),
          fault_of("dz", numbers_in(seen.at("dz")),
                   columns_of(whole.dz, of.tokens(), first, columns), alone.dz, run.world)})
      if (!found.empty())
        return {{fmt::format("{}, rank {} with columns {} to {}: {}", of.name, rank, first,
                             first + columns - 1, found)}};
    first += columns;
  }
  return {};
}

// Three numbers a token in fp64, through a ring; never logits.
Verdict judge_calls(const Run& run) {
  const Problem of = problem<Kind::plain>(run.world, run.seed);
  const auto p = static_cast<std::uint64_t>(run.world);
  const std::uint64_t numbers_sent = 3 * static_cast<std::uint64_t>(of.tokens()) * 8,
                      expected = 2 * (p - 1) * numbers_sent / p;
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& calls = run.ranks[rank].at("calls");
    if (const std::uint64_t sent = calls.at("sent"); sent != expected)
      return {
          {fmt::format("rank {} sent {} bytes in {} calls, expected {}: 2 (p-1)/p of three "
                       "numbers for each of {} tokens",
                       rank, sent, calls.at("calls").size(), expected, of.tokens())}};
    if (const std::string found =
            difference_of_calls(calls, {"all_reduce of max of head", "all_reduce of sums of head"});
        !found.empty())
      return {{fmt::format("rank {} {}", rank, found)}};
  }
  return {};
}

const Judge judge("25-vocab-cross-entropy",
                  {{"values", collect<Kind::plain>, judge_numbers<Kind::plain>},
                   {"large", collect<Kind::large>, judge_numbers<Kind::large>},
                   {"calls", collect<Kind::plain>, judge_calls},
                   {"ignored", collect<Kind::ignored>, judge_numbers<Kind::ignored>},
                   {"uneven", collect<Kind::uneven>, judge_numbers<Kind::uneven>}});

}  // namespace
}  // namespace ringside::exercises

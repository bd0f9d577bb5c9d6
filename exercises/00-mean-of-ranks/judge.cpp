// Judges the first function that a student writes: the mean of 1, 2, ..., p over the ranks.
#include "exercises/judge/judge.hpp"
#include "exercises/00-mean-of-ranks/interface.hpp"

namespace ringside::exercises {
namespace {

Json collect_mean(World& world) {
  const auto tensor = autograd::Tensor::full({3}, world.rank() + 1, autograd::DType::fp64);
  world.doing("all_reduce_mean");
  student_mean(tensor, world.group(), "ranks");
  const auto values = tensor.values<double>();
  return std::vector<double>(values.begin(), values.end());
}

Verdict judge_mean(const Run& run) {
  std::vector<int> numbers;
  for (int rank = 0; rank < run.world; ++rank) numbers.push_back(rank + 1);
  const double mean = (run.world + 1) / 2.0;
  for (int rank = 0; rank < run.world; ++rank)
    for (const double seen : run.ranks[rank].get<std::vector<double>>()) {
      if (std::abs(seen - mean) < 1e-12) continue;  // a division before the sum rounds
      std::string why;
      if (std::abs(seen - mean * run.world) < 1e-9) why = ": that is the sum";
      if (seen == rank + 1) why = ": that is what this rank began with";
      if (std::abs(seen * run.world - mean) < 1e-9)
        why = fmt::format(": it has been divided by {} twice", run.world);
      return {{fmt::format("rank {}: the mean of {} came out as {:.3g}{}", rank,
                           fmt::join(numbers, ", "), seen, why)}};
    }
  return {};
}

const Judge judge("00-mean-of-ranks", {{"mean", collect_mean, judge_mean}});

}  // namespace
}  // namespace ringside::exercises

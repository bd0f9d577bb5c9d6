#include "training/elastic/elastic_sizes.hpp"

#include <cstdio>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "training/plan/plan.hpp"

namespace ringside::training {

ElasticSizes ElasticSizes::parse(const std::string& text) {
  ElasticSizes sizes;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%d:%d%n", &sizes.smallest, &sizes.largest, &end);
  require(read == 2 && static_cast<std::size_t>(end) == text.size() && sizes.smallest >= 1 &&
              sizes.largest >= sizes.smallest && sizes.largest <= 1024,
          "expected the smallest and the largest number of ranks, such as 2:4, not '{}'", text);
  return sizes;
}

std::int64_t ElasticSizes::smallest_batch() const {
  constexpr std::int64_t most = 1 << 20;
  std::int64_t batch = 1;
  for (std::int64_t ranks = smallest; ranks <= largest && batch <= most; ++ranks)
    batch = std::lcm(batch, ranks);
  require(
      batch <= most,
      "no batch of at most {} sequences divides among {} to {} ranks, as --elastic may have any "
      "of these: narrow the range",
      most, smallest, largest);
  return batch;
}

std::string ElasticSizes::obstacle(const Plan& plan) const {
  if (plan.mesh.given()) return "--elastic changes the number of ranks: leave out --mesh";
  const std::set<std::string> survive{"single", "naive", "flat", "overlap", "bucketed"};
  if (!survive.contains(plan.strategy))
    return fmt::format(
        "--elastic needs a strategy in which every rank holds all that a lost one held: naive, "
        "flat, overlap or bucketed, not {}; any other goes on from its last checkpoint, with "
        "--restarts N --save DIR --save-every K in place of --elastic",
        plan.strategy);
  if (plan.device != autograd::Device::cpu)
    return "--elastic trains on CPUs only: leave out --device";
  const std::int64_t parts = plan.options.accumulate, multiple = smallest_batch() * parts;
  if (plan.options.batch % multiple == 0) return "";
  return fmt::format(
      "the batch of {} sequences must divide among {} to {} ranks{}, as --elastic may have any of "
      "these: take --batch {}, or another multiple of {}",
      plan.options.batch, smallest, largest,
      parts == 1 ? "" : fmt::format(" in {} micro-batches each", parts), multiple, multiple);
}

}  // namespace ringside::training

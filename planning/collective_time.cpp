#include "planning/collective_time.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "collectives/exchange/algorithm_file.hpp"

namespace ringside::planning {
namespace {

using collectives::Collective;
using collectives::CostParameters;

// The symbols of the closed forms: n ranks, D bytes, q the largest power of two up to n. The r = n
// - q ranks beyond it fold their buffers into a neighbour's first, and get the result last.
struct Symbols {
  Symbols(std::int64_t ranks, double bytes, const CostParameters& costs)
      : n("n", ranks),
        size("D", bytes),
        alpha("alpha", costs.alpha),
        beta("beta", costs.beta),
        gamma("gamma", costs.gamma),
        q(static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ranks)))),
        steps("log2(q)", std::bit_width(static_cast<std::uint64_t>(q)) - 1.0),
        folded(ranks - q) {}

  Quantity n, size, alpha, beta, gamma;
  std::int64_t q;
  Quantity steps;
  std::int64_t folded;

  // A whole buffer to the neighbour, added there; and the result back.
  Quantity with_folding(const Quantity& seconds) const {
    if (folded == 0) return seconds;
    return seconds + 2 * alpha + (2 * beta + gamma) * size;
  }
};

// n - 1 steps that add a chunk of D/n, and n - 1 that pass the sums on.
Quantity ring(const Symbols& s) {
  return 2 * (s.n - 1) * s.alpha + (s.n - 1) * (2 * s.beta + s.gamma) * s.size / s.n;
}

// Each step of halving adds half of what the step before did; doubling goes the same way back. A
// folded party stands for two chunks, and the first parties are folded: the longest part of a step
// of distance d is that of the first d parties.
Quantity halving_doubling(const Symbols& s) {
  double chunks = 0;
  for (std::int64_t distance = s.q / 2; distance >= 1; distance /= 2)
    chunks += static_cast<double>(distance + std::min(distance, s.folded));
  const Quantity added("chunks", chunks);
  return s.with_folding(2 * s.steps * s.alpha + added * (2 * s.beta + s.gamma) * s.size / s.n);
}

// Each step exchanges and adds the whole buffer.
Quantity recursive_doubling(const Symbols& s) {
  return s.with_folding(s.steps * (s.alpha + (s.beta + s.gamma) * s.size));
}

struct ClosedForm {
  const char* algorithm;
  Quantity (*seconds)(const Symbols& symbols);
  const char* source;
};

constexpr ClosedForm closed_forms[] = {
    {"ring", ring, "Patarasuk and Yuan 2009, section 3"},
    {"halving_doubling", halving_doubling, "Rabenseifner 2004; Thakur et al. 2005, section 4.5"},
    {"recursive_doubling", recursive_doubling, "Thakur et al. 2005, section 4.5"}};

}  // namespace

CostParameters costs_on(const Level& level) {
  return {.alpha = level.latency, .beta = 1 / level.rate(), .overhead = level.latency};
}

std::vector<std::string> closed_form_names() {
  std::vector<std::string> names;
  for (const ClosedForm& form : closed_forms) names.emplace_back(form.algorithm);
  return names;
}

Term all_reduce_closed_form(std::string_view algorithm, std::int64_t ranks, double bytes,
                            const CostParameters& costs) {
  for (const ClosedForm& form : closed_forms)
    if (form.algorithm == algorithm)
      return {"t", fmt::format("{} all-reduce", algorithm),
              form.seconds(Symbols(ranks, bytes, costs)), Unit::seconds, form.source};
  fail(
      "there is no closed form of the all-reduce '{}', only of {}: choose one of these, or at most "
      "{} ranks",
      algorithm, fmt::join(closed_form_names(), ", "), most_ranks_walked);
}

Term in_network_all_reduce(double bytes, const Level& level) {
  const Quantity alpha("alpha", level.latency), size("D", bytes), w("W", level.bytes_per_second),
      efficiency("eta_net", level.in_network_efficiency),
      oversubscribed("o", level.oversubscription);
  return {"t", "all-reduce in the switches of " + level.name,
          2 * alpha + oversubscribed * size / (w * efficiency), Unit::seconds,
          "Graham et al. 2016 (SHARP)"};
}

Term double_tree_all_reduce(std::size_t index, std::int64_t ranks, std::int64_t stride,
                            double bytes, const Machine& machine) {
  const Level ring = machine.level_of_ring(index, ranks, stride);
  const Quantity hops("hops", machine.tree_latency(index, ranks, stride)), size("D", bytes),
      rate("W", ring.rate());
  return {"t", "all-reduce by two binary trees over " + ring.name, hops + 2 * size / rate,
          Unit::seconds, "Sanders, Speck and Traeff 2009"};
}

double collective_seconds(Collective collective, std::size_t index, std::int64_t ranks,
                          std::int64_t stride, double bytes, const Machine& machine) {
  const Level level = machine.level_of_ring(index, ranks, stride);
  const CostParameters costs = costs_on(level);
  double best = 0;
  if (ranks <= most_ranks_walked) {
    best = collectives::cost_of(collectives::find_algorithm(collective, "ring"),
                                static_cast<int>(ranks),
                                static_cast<std::uint64_t>(std::llround(bytes)), costs)
               .seconds;
  } else {
    // Half of an all-reduce: it gathers, or it scatters the sums.
    best = all_reduce_closed_form("ring", ranks, bytes, costs).value() /
           (collective == Collective::all_reduce ? 1 : 2);
  }
  if (collective != Collective::all_reduce) return best;
  if (index > 0)
    best = std::min(best, double_tree_all_reduce(index, ranks, stride, bytes, machine).value());
  if (level.in_network_efficiency > 0)
    best = std::min(best, in_network_all_reduce(bytes, machine.level_along(index, stride)).value());
  return best;
}

CollectiveTime all_reduce_time(std::string_view algorithm, std::int64_t ranks, std::uint64_t bytes,
                               const Machine& machine) {
  const auto size = static_cast<double>(bytes);
  const std::size_t index = machine.level_index_for(ranks);
  if (algorithm == "in_network") {
    const Level& level = machine.levels[index];
    require(
        level.in_network_efficiency > 0,
        "the switches of {} on {} do not add up: give the level an in_network_efficiency in the "
        "topology, or leave out in_network",
        level.name, machine.name);
    return {std::string(algorithm), ranks, bytes, in_network_all_reduce(size, level).value()};
  }
  if (algorithm == "double_tree" && index > 0) {  // between servers, with all of their cards
    return {std::string(algorithm), ranks, bytes,
            double_tree_all_reduce(index, ranks, 1, size, machine).value()};
  }
  const auto& found = collectives::algorithm_named(Collective::all_reduce, std::string(algorithm));
  const CostParameters costs = algorithm == "ring"
                                   ? costs_on(machine.level_of_ring(index, ranks, 1))
                                   : costs_on(machine.levels[index]);
  const bool walked = ranks <= most_ranks_walked;
  const double seconds =
      walked ? collectives::cost_of(found, static_cast<int>(ranks), bytes, costs).seconds
             : all_reduce_closed_form(algorithm, ranks, size, costs).value();
  return {std::string(found.name), ranks, bytes, seconds, walked};
}

}  // namespace ringside::planning

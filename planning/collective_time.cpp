#include "planning/collective_time.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

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

  // log2(n), rounded up.
  Quantity rounds() const { return steps + (folded > 0 ? 1 : 0); }

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

// Half of a ring all-reduce, in n - 1 steps: sums on, or blocks on.
Quantity ring_reduce_scatter(const Symbols& s) {
  return (s.n - 1) * s.alpha + (s.n - 1) * (s.beta + s.gamma) * s.size / s.n;
}
Quantity ring_all_gather(const Symbols& s) {
  return (s.n - 1) * s.alpha + (s.n - 1) * s.beta * s.size / s.n;
}

// As few steps as doubling has, for every n, and as few bytes as a ring.
Quantity pat_reduce_scatter(const Symbols& s) {
  return s.rounds() * s.alpha + (s.n - 1) * (s.beta + s.gamma) * s.size / s.n;
}
Quantity pat_all_gather(const Symbols& s) {
  return s.rounds() * s.alpha + (s.n - 1) * s.beta * s.size / s.n;
}

// n rounds of exchanges between partners, in one of which a rank is its own; a pair needs one.
Quantity pairwise(const Symbols& s) {
  const Quantity rounds = s.n.value() > 2 ? s.n : 1;
  return rounds * s.alpha + rounds * s.beta * s.size / s.n;
}

// The first slice takes n - 1 hops, and the others follow at the rate of the network.
Quantity chain(const Symbols& s) {
  return (s.n - 1) * s.alpha + s.beta * s.size;
}

// The ranks that have the buffer double in each round.
Quantity binomial(const Symbols& s) {
  return s.rounds() * (s.alpha + s.beta * s.size);
}

// The same two, back to the root, with additions.
Quantity chain_reduce(const Symbols& s) {
  return (s.n - 1) * s.alpha + (s.beta + s.gamma) * s.size;
}
Quantity binomial_reduce(const Symbols& s) {
  return s.rounds() * (s.alpha + (s.beta + s.gamma) * s.size);
}

// The root receives, or sends, every other rank's block: one after the other, or those of half a
// tree together.
Quantity linear_blocks(const Symbols& s) {
  return (s.n - 1) * (s.alpha + s.beta * s.size / s.n);
}
Quantity binomial_blocks(const Symbols& s) {
  return s.rounds() * s.alpha + (s.n - 1) * s.beta * s.size / s.n;
}

struct ClosedForm {
  Collective collective;
  const char* algorithm;
  Quantity (*seconds)(const Symbols& symbols);
  const char* source;
  bool is_ring = false;    // in channels, over all cards of a server
  bool is_sliced = false;  // is not walked, because a schedule has whole chunks
};

constexpr const char* patarasuk = "Patarasuk and Yuan 2009, section 3";
constexpr const char* jeaugey = "Jeaugey 2025 (PAT)";
constexpr ClosedForm closed_forms[] = {
    {Collective::all_reduce, "ring", ring, patarasuk, true},
    {Collective::all_reduce, "halving_doubling", halving_doubling,
     "Rabenseifner 2004; Thakur et al. 2005, section 4.5"},
    {Collective::all_reduce, "recursive_doubling", recursive_doubling,
     "Thakur et al. 2005, section 4.5"},
    {Collective::all_gather, "ring", ring_all_gather, patarasuk, true},
    {Collective::all_gather, "pat", pat_all_gather, jeaugey},
    {Collective::reduce_scatter, "ring", ring_reduce_scatter, patarasuk, true},
    {Collective::reduce_scatter, "pat", pat_reduce_scatter, jeaugey},
    {Collective::all_to_all, "pairwise", pairwise, "Thakur et al. 2005, section 4.4"},
    {Collective::broadcast, "chain", chain, "Chan et al. 2007, section 3", true, true},
    {Collective::broadcast, "binomial", binomial, "Thakur et al. 2005, section 4.2"},
    {Collective::reduce, "chain", chain_reduce, "Chan et al. 2007, section 3", true, true},
    {Collective::reduce, "binomial", binomial_reduce, "Thakur et al. 2005, section 4.6"},
    {Collective::gather, "linear", linear_blocks, "one port: Hockney 1994"},
    {Collective::gather, "binomial", binomial_blocks, "Chan et al. 2007, section 3"},
    {Collective::scatter, "linear", linear_blocks, "one port: Hockney 1994"},
    {Collective::scatter, "binomial", binomial_blocks, "Chan et al. 2007, section 3"}};

// What exchanges differently inside servers and between them.
std::span<const std::string_view> between_servers(Collective collective) {
  static constexpr std::string_view all[] = {"hierarchical", "double_tree"};
  if (collective == Collective::all_reduce) return all;
  return {all, collective == Collective::all_to_all ? std::size_t{1} : 0};
}

const ClosedForm* form_of(Collective collective, std::string_view algorithm) {
  for (const ClosedForm& form : closed_forms)
    if (form.collective == collective && form.algorithm == algorithm) return &form;
  return nullptr;
}

}  // namespace

CostParameters costs_on(const Level& level) {
  return {.alpha = level.latency, .beta = 1 / level.rate(), .overhead = level.latency};
}

namespace {

// By the switches of a level, which must have an in_network_efficiency.
Term in_network_all_reduce(double bytes, const Level& level) {
  const Quantity alpha("alpha", level.latency), size("D", bytes), w("W", level.bytes_per_second),
      efficiency("eta_net", level.in_network_efficiency),
      oversubscribed("o", level.oversubscription);
  return {"t", "all-reduce in the switches of " + level.name,
          2 * alpha + oversubscribed * size / (w * efficiency), Unit::seconds,
          "Graham et al. 2016 (SHARP)"};
}

// On ranks `stride` apart, of several groups of level `index` - 1.
Term double_tree_all_reduce(std::size_t index, std::int64_t ranks, std::int64_t stride,
                            double bytes, const Machine& machine) {
  const Level ring = machine.level_of_ring(index, ranks, stride);
  const Quantity hops("hops", machine.tree_latency(index, ranks, stride)), size("D", bytes),
      rate("W", ring.rate());
  return {"t", "all-reduce by two binary trees over " + ring.name, hops + 2 * size / rate,
          Unit::seconds, "Sanders, Speck and Traeff 2009"};
}

// Of whole servers, joined by level `index`: ranks of one place in their servers exchange at the
// same time, each over its own card. Throws Error if the last server is not whole.
Term hierarchical_collective(Collective collective, std::size_t index, std::int64_t ranks,
                             double bytes, const Machine& machine) {
  const std::int64_t k = machine.ranks_on_server(ranks, 1), servers = ranks / k;
  require(ranks % k == 0,
          "hierarchical takes whole servers of {}, and {} ranks are none: choose a multiple of {}",
          k, ranks, k);
  const CostParameters inside = costs_on(machine.levels.front());
  const Symbols row(k, bytes, inside);
  if (collective == Collective::all_to_all) {
    const Symbols column(servers, bytes, costs_on(machine.level_along(index, k)));
    return {"t", "all-to-all inside servers, then across", pairwise(row) + pairwise(column),
            Unit::seconds, "Hwang et al. 2023 (Tutel), section 3"};
  }
  const Symbols column(servers, bytes / static_cast<double>(k),
                       costs_on(machine.level_of_ring(index, servers, k)));
  return {"t", "reduce-scatter inside servers, all-reduce across, all-gather inside",
          ring_reduce_scatter(row) + ring(column) + ring_all_gather(row), Unit::seconds,
          "Ueno and Yokota 2019"};
}

}  // namespace

std::vector<std::string> simulated_collectives() {
  std::vector<std::string> names;
  for (const ClosedForm& form : closed_forms)
    if (names.empty() || names.back() != name_of(form.collective))
      names.emplace_back(name_of(form.collective));
  return names;
}

std::vector<std::string> algorithms_on(Collective collective, std::int64_t ranks,
                                       const Machine& machine) {
  std::vector<std::string> names = closed_form_names(collective);
  const std::size_t index = machine.level_index_for(ranks);
  const bool reduces = collective == Collective::all_reduce,
             are_whole = ranks % machine.ranks_on_server(ranks, 1) == 0;
  if (index > 0 && reduces) names.emplace_back("double_tree");
  if (index > 0 && collective == Collective::all_to_all && are_whole)
    names.emplace_back("hierarchical");
  if (reduces && machine.levels[index].in_network_efficiency > 0) names.emplace_back("in_network");
  return names;
}

std::vector<std::string> closed_form_names(Collective collective) {
  std::vector<std::string> names;
  for (const ClosedForm& form : closed_forms)
    if (form.collective == collective) names.emplace_back(form.algorithm);
  return names;
}

Term closed_form(Collective collective, std::string_view algorithm, std::int64_t ranks,
                 double bytes, const CostParameters& costs) {
  const ClosedForm* const form = form_of(collective, algorithm);
  require(form != nullptr,
          "there is no closed form of the {} '{}', only of {}: choose one of these, or at most {} "
          "ranks",
          name_of(collective), algorithm, fmt::join(closed_form_names(collective), ", "),
          most_ranks_walked);
  return {"t", fmt::format("{} {}", algorithm, name_of(collective)),
          form->seconds(Symbols(ranks, bytes, costs)), Unit::seconds, form->source};
}

double collective_seconds(Collective collective, std::size_t index, std::int64_t ranks,
                          std::int64_t stride, double bytes, const Machine& machine) {
  const bool is_ring = collective != Collective::all_to_all;
  const char* const algorithm = is_ring ? "ring" : "pairwise";
  const Level level =
      is_ring ? machine.level_of_ring(index, ranks, stride) : machine.level_along(index, stride);
  const CostParameters costs = costs_on(level);
  double best = 0;
  if (ranks <= most_ranks_walked) {
    best = collectives::cost_of(collectives::find_algorithm(collective, algorithm),
                                static_cast<int>(ranks),
                                static_cast<std::uint64_t>(std::llround(bytes)), costs)
               .seconds;
  } else {
    best = closed_form(collective, algorithm, ranks, bytes, costs).value();
  }
  if (collective != Collective::all_reduce) return best;
  if (index > 0)
    best = std::min(best, double_tree_all_reduce(index, ranks, stride, bytes, machine).value());
  if (level.in_network_efficiency > 0)
    best = std::min(best, in_network_all_reduce(bytes, machine.level_along(index, stride)).value());
  return best;
}

CollectiveTime collective_time(Collective collective, std::string_view algorithm,
                               std::int64_t ranks, std::uint64_t bytes, const Machine& machine) {
  const auto size = static_cast<double>(bytes);
  const std::size_t index = machine.level_index_for(ranks);
  CollectiveTime time{collective, std::string(algorithm), ranks, bytes};
  if (collective == Collective::all_reduce && algorithm == "in_network") {
    const Level& level = machine.levels[index];
    require(
        level.in_network_efficiency > 0,
        "the switches of {} on {} do not add up: give the level an in_network_efficiency in the "
        "topology, or leave out in_network",
        level.name, machine.name);
    time.seconds = in_network_all_reduce(size, level).value();
    return time;
  }
  // Between servers, with all of their cards.
  const auto special = between_servers(collective);
  if (index > 0 && std::ranges::find(special, algorithm) != special.end()) {
    const Term seconds = algorithm == "double_tree"
                             ? double_tree_all_reduce(index, ranks, 1, size, machine)
                             : hierarchical_collective(collective, index, ranks, size, machine);
    time.seconds = seconds.value();
    return time;
  }
  const auto& found = collectives::algorithm_named(collective, time.algorithm);
  const ClosedForm* const form = form_of(collective, algorithm);
  const CostParameters costs = form != nullptr && form->is_ring
                                   ? costs_on(machine.level_of_ring(index, ranks, 1))
                                   : costs_on(machine.levels[index]);
  time.algorithm = found.name;
  time.walked = ranks <= most_ranks_walked && (form == nullptr || !form->is_sliced);
  time.seconds = time.walked
                     ? collectives::cost_of(found, static_cast<int>(ranks), bytes, costs).seconds
                     : closed_form(collective, algorithm, ranks, size, costs).value();
  return time;
}

}  // namespace ringside::planning

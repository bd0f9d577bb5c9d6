#include "collectives/selection/algorithm_selection.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace ringside::collectives {

// Costs within this factor count as equal: the model is not more accurate. Of equals, the first in
// the catalogue is selected, but before that one which is announced, if ranks take turns on a core:
// each wait is a turn, and the model knows less of it (docs/performance.md).
constexpr double tolerance = 1.05;

AlgorithmSelection::AlgorithmSelection(std::string_view forced) {
  while (!forced.empty()) {
    const std::string_view entry = forced.substr(0, forced.find(','));
    forced.remove_prefix(std::min(forced.size(), entry.size() + 1));
    if (entry.find('=') == std::string_view::npos && is_algorithm_file(entry)) {
      const Algorithm& algorithm = algorithm_of_file(entry);
      forced_[algorithm.collective] = &algorithm;
      continue;
    }
    const std::size_t equals = entry.find('=');
    require(equals != std::string_view::npos && equals + 1 < entry.size(),
            "'{}' does not name an algorithm: write collective=algorithm, such as all_reduce=ring, "
            "or a file, such as my.json, separated by commas",
            entry);
    const Collective collective = collective_named(entry.substr(0, equals));
    forced_[collective] = &find_algorithm(collective, entry.substr(equals + 1));
  }
}

void AlgorithmSelection::fix_order() {
  constexpr std::pair<Collective, std::string_view> by_one_tree[] = {
      {Collective::all_reduce, "halving_doubling"},
      {Collective::reduce_scatter, "halving"},
      {Collective::reduce, "halving"}};
  for (const auto& [collective, name] : by_one_tree) {
    const Algorithm& fixed = find_algorithm(collective, name);
    const auto [at, is_new] = forced_.try_emplace(collective, &fixed);
    require(is_new || at->second == &fixed,
            "RINGSIDE_ORDER=fixed adds by {0}={1}, but {0}={2} is forced: leave one of the two out",
            name_of(collective), name, at->second->name);
  }
}

void AlgorithmSelection::require_files_for(int size) const {
  for (const auto& [collective, algorithm] : forced_)
    if (!has_size(*algorithm, size) && size > 1)
      make_schedules(*algorithm, size);  // throws, with the sizes that there are
}

void AlgorithmSelection::set_costs(const MachineCosts& costs) {
  costs_ = costs;
  found_.clear();
}

const Algorithm& AlgorithmSelection::choose(Collective collective, std::size_t count, DataType type,
                                            int size, bool unequal) const {
  if (const auto forced = forced_.find(collective); forced != forced_.end())
    if (has_size(*forced->second, size)) return *forced->second;
  if (!costs_ || size < 2 || (unequal && collective == Collective::all_to_all))
    return find_algorithm(collective);
  const Kind kind{collective, size,
                  static_cast<int>(std::bit_width(std::uint64_t{count} * size_of(type)))};
  const auto known = found_.find(kind);
  return known != found_.end() ? *known->second
                               : *found_.emplace(kind, &cheapest(kind)).first->second;
}

const Algorithm& AlgorithmSelection::cheapest(const Kind& kind) const {
  const std::vector<const Algorithm*> algorithms = algorithms_to_select(kind.collective);
  if (algorithms.size() == 1) return *algorithms.front();

  const std::uint64_t middle =
      kind.size_class == 0 ? 0 : (std::uint64_t{3} << (kind.size_class - 1)) / 2;
  struct Candidate {
    const Algorithm* algorithm;
    double least = 0;
    std::optional<double> seconds = {};  // if it was walked
  };
  std::vector<Candidate> candidates;
  std::vector<Candidate*> by_least;
  for (const Algorithm* algorithm : algorithms)
    candidates.push_back({algorithm, costs_->least_seconds_of(*algorithm, kind.size, middle)});
  for (Candidate& candidate : candidates) by_least.push_back(&candidate);
  std::sort(by_least.begin(), by_least.end(),
            [](const Candidate* a, const Candidate* b) { return a->least < b->least; });
  // A walk takes long with many ranks, so only those are walked that may be good enough.
  double good_enough = std::numeric_limits<double>::infinity();
  for (Candidate* candidate : by_least) {
    if (candidate->least > good_enough) break;
    candidate->seconds = costs_->seconds_of(*candidate->algorithm, kind.size, middle);
    good_enough = std::min(good_enough, *candidate->seconds * tolerance);
  }
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return !candidate.seconds || *candidate.seconds > good_enough;
  });
  const int cores = costs_->common.cores;
  const bool take_turns = cores > 0 && kind.size > cores;
  const auto announced = std::ranges::find_if(candidates, [&](const Candidate& candidate) {
    return take_turns && costs_->announces(*candidate.algorithm);
  });
  return *(announced != candidates.end() ? announced : candidates.begin())->algorithm;
}

}  // namespace ringside::collectives

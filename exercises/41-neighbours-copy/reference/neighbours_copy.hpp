// What ranks hold for each other, so that the loss of one of them loses nothing.
#pragma once

#include <set>
#include <vector>

#include "exercises/41-neighbours-copy/pieces.hpp"

namespace ringside::backup {

// What `rank` of `ranks` holds between two steps, by its strategy alone.
inline Pieces held(Strategy strategy, int ranks, int rank) {
  Pieces pieces;
  for (int shard = 0; shard < ranks; ++shard) {
    if (strategy != Strategy::zero3 || shard == rank) pieces.insert({Kind::parameters, shard});
    if (strategy == Strategy::data_parallel || shard == rank) pieces.insert({Kind::moments, shard});
  }
  return pieces;
}

// What it holds besides, for another rank: as few pieces as possible.
inline Pieces copies(Strategy strategy, int ranks, int rank) {
  const int left = (rank + ranks - 1) % ranks;
  if (strategy == Strategy::data_parallel) return {};
  if (strategy == Strategy::zero3) return {{Kind::parameters, left}, {Kind::moments, left}};
  return {{Kind::moments, left}};
}

// Whether the ranks that are left hold every piece.
inline bool survives(Strategy strategy, int ranks, const std::set<int>& lost) {
  Pieces left;
  for (int rank = 0; rank < ranks; ++rank) {
    if (lost.contains(rank)) continue;
    left.merge(held(strategy, ranks, rank));
    left.merge(copies(strategy, ranks, rank));
  }
  return left.size() == 2 * static_cast<std::size_t>(ranks);
}

// The actions of a step in their order, the same on every rank.
inline std::vector<Action> step(Strategy strategy) {
  std::vector<Action> actions = {Action::compute, Action::reduce};
  const bool has_copies = strategy != Strategy::data_parallel;
  const bool owner_has_gradient = has_copies && strategy != Strategy::zero1;
  if (owner_has_gradient) actions.push_back(Action::send_gradient);
  // When all agree, every gradient is on two ranks.
  actions.insert(actions.end(), {Action::agree, Action::update});
  if (has_copies) actions.push_back(Action::update_copy);
  if (has_copies && strategy != Strategy::zero3) actions.push_back(Action::gather);
  return actions;
}

// In fp32: 4 bytes for each of `parameters` and its gradient, 8 for its moments.
inline Bytes cost(Strategy strategy, double parameters, int ranks) {
  const double shard = parameters / ranks;
  switch (strategy) {
    case Strategy::data_parallel:
      return {};
    case Strategy::zero1:
      return {.kept = 8 * shard};
    case Strategy::zero2:
      return {.kept = 8 * shard, .sent = 4 * shard};
    case Strategy::zero3:
      return {.kept = 12 * shard, .sent = 4 * shard};
  }
  return {};
}

}  // namespace ringside::backup

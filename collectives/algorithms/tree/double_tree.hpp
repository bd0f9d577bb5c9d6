// Two binary trees at once, each with half of the buffer: NCCL's Tree.
//
// In one binary tree the inner ranks send each byte twice, and the leaves, half of all ranks, send
// nothing. So there are TWO trees, and an inner rank of the one is a leaf of the other. Chunk t
// travels in tree t, and every rank sends about as much as it receives:
//
//     size 6      tree 0     0               tree 1     5
//                            │                          │
//                            4                          1
//                          ┌─┴─┐                      ┌─┴─┐
//                          2   5                      0   3
//                        ┌─┴─┐                          ┌─┴─┐
//                        1   3                          2   4
//
// Over both trees a rank has at most two parents and two children. Edges are COLOURED with 0 and 1:
// the edges from a rank's two parents differ, and so do those to its two children. An edge of
// colour c is used in steps c, c+2, c+4, ... only. So in every step a rank sends at most one
// message and receives at most one, also when slices follow each other without a pause.
//
// Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", Parallel Computing 35 (2009), pages 581-594. The trees of the all-reduce are NCCL's.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/algorithms/reversed.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// The parent of `place` in a binary tree of the places 0 .. size-1; -1 for place 0, the root, which
// has one child. The lowest set bit says how far a place is above the leaves: odd places are
// leaves.
constexpr int tree_parent(int place, int size) {
  if (place == 0) return -1;
  const int bit = place & -place;
  const int up = (place ^ bit) | (bit << 1);
  return up < size ? up : place ^ bit;
}

// Trees of ranks, with the step of a broadcast in which each rank receives.
class Trees {
 public:
  explicit Trees(int size) : size_(size) {}

  // NCCL's two trees. The second one is the first one mirrored, or shifted by a rank if the size is
  // odd: either way even places become odd ones, and inner ranks leaves.
  static Trees of_nccl(int size) {
    Trees trees(size);
    trees.add([](int place) { return place; });
    if (size % 2 == 0)
      trees.add([size](int place) { return size - 1 - place; });
    else
      trees.add([size](int place) { return wrap(place + 1, size); });
    trees.find_steps();
    return trees;
  }

  // One tree or two that start at `root`, which is inside of neither: only the other ranks are
  // mirrored or shifted.
  static Trees from_root(int size, int root, int count) {
    Trees trees(size);
    trees.add([&](int place) { return wrap(root + place, size); });
    if (count == 2 && size % 2 == 1)
      trees.add([&](int place) { return wrap(root - place, size); });
    else if (count == 2)
      trees.add(
          [&](int place) { return place == 0 ? root : wrap(root + place % (size - 1) + 1, size); });
    trees.find_steps();
    return trees;
  }

  int count() const { return static_cast<int>(parent_.size()) / size_; }
  int parent(int tree, int rank) const { return parent_[edge(tree, rank)]; }  // -1: the root
  int step(int tree, int rank) const { return step_[edge(tree, rank)]; }      // -1: the root
  int steps() const { return 1 + *std::max_element(step_.begin(), step_.end()); }

 private:
  // An edge is named after its child.
  int edge(int tree, int rank) const { return tree * size_ + rank; }

  template <class RankAt>
  void add(const RankAt& rank_at) {
    const int first = static_cast<int>(parent_.size());
    parent_.resize(first + size_, -1);
    for (int place = 1; place < size_; ++place)
      parent_[first + rank_at(place)] = rank_at(tree_parent(place, size_));
  }

  void find_steps() {
    const int edges = static_cast<int>(parent_.size());
    out_.resize(size_);
    for (int e = 0; e < edges; ++e)
      if (parent_[e] >= 0) out_[parent_[e]].push_back(e);
    colour_.assign(edges, -1);
    for (int e = 0; e < edges; ++e)  // edges from a root come first: they begin in step 0
      if (parent_[e] >= 0 && above(e) < 0) colour_from(e);
    for (int e = 0; e < edges; ++e)
      if (parent_[e] >= 0) colour_from(e);
    step_.assign(edges, -1);
    for (int e = 0; e < edges; ++e) step_[e] = step_of(e);
  }

  // The edge that ends where `e` begins; -1 if that is the root.
  int above(int e) const {
    const int up = edge(e / size_, parent_[e]);
    return parent_[up] < 0 ? -1 : up;
  }

  // An edge has at most two neighbours that must have the other colour, so edges form paths and
  // circles. Circles have an even length, as sends and receives alternate on them.
  void colour_from(int start) {
    std::vector<std::pair<int, int>> open{{start, 0}};
    while (!open.empty()) {
      const auto [e, colour] = open.back();
      open.pop_back();
      if (colour_[e] >= 0) continue;
      colour_[e] = colour;
      for (int other : out_[parent_[e]])
        if (other != e) open.emplace_back(other, 1 - colour);
      for (int other = e % size_; other < static_cast<int>(parent_.size()); other += size_)
        if (other != e && parent_[other] >= 0) open.emplace_back(other, 1 - colour);
    }
  }

  int step_of(int e) const {
    if (parent_[e] < 0) return -1;
    const int up = above(e), earliest = up < 0 ? 0 : step_of(up) + 1;
    return earliest + (earliest + colour_[e]) % 2;
  }

  int size_;
  std::vector<int> parent_, colour_, step_;  // [edge]
  std::vector<std::vector<int>> out_;        // [rank] the edges to its children
};

// Chunk t goes down tree t, from each rank to its children.
inline Schedule down_the_trees(const Trees& trees, int size, int rank) {
  Schedule schedule{.chunks = size == 1 ? 1 : trees.count(),
                    .steps = std::vector<Step>(trees.steps())};
  for (int tree = 0; tree < trees.count(); ++tree)
    for (int child = 0; child < size; ++child) {
      const int parent = trees.parent(tree, child);
      if (parent < 0) continue;
      Step& step = schedule.steps[trees.step(tree, child)];
      if (parent == rank) step.send = Send{.to = child, .chunks = {tree}};
      if (child == rank)
        step.receive = Receive{.from = parent, .chunks = {tree}, .action = Action::overwrite};
    }
  return schedule;
}

// Afterwards every rank holds the sum of all ranks' buffers: each half goes up its tree and is
// added on the way, then comes down again.
inline Schedule double_tree_all_reduce(int size, int rank) {
  const Schedule down = down_the_trees(Trees::of_nccl(size), size, rank);
  Schedule schedule = reversed(down, Action::add);
  for (const Step& step : down.steps) schedule.steps.push_back(step);
  return schedule;
}

// Afterwards every rank holds the root's buffer. With two trees the root sends each byte once, and
// no rank sends more than the buffer; with one the inner ranks send it twice.
inline Schedule double_tree_broadcast(int size, int rank, int root) {
  return down_the_trees(Trees::from_root(size, root, 2), size, rank);
}
inline Schedule binary_tree_broadcast(int size, int rank, int root) {
  return down_the_trees(Trees::from_root(size, root, 1), size, rank);
}

// Afterwards the root holds the sum of all ranks' buffers: the broadcasts in reverse.
inline Schedule double_tree_reduce(int size, int rank, int root) {
  return reversed(double_tree_broadcast(size, rank, root), Action::add);
}
inline Schedule binary_tree_reduce(int size, int rank, int root) {
  return reversed(binary_tree_broadcast(size, rank, root), Action::add);
}

}  // namespace ringside::collectives

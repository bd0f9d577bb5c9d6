#include "collectives/algorithms/catalogue.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "collectives/algorithms/direct/direct.hpp"
#include "collectives/algorithms/direct/linear.hpp"
#include "collectives/algorithms/direct/pairwise.hpp"
#include "collectives/algorithms/doubling/barrier.hpp"
#include "collectives/algorithms/doubling/bruck.hpp"
#include "collectives/algorithms/doubling/halving_doubling.hpp"
#include "collectives/algorithms/doubling/pat.hpp"
#include "collectives/algorithms/doubling/recursive_doubling.hpp"
#include "collectives/algorithms/hierarchical/all_to_all.hpp"
#include "collectives/algorithms/hierarchical/hierarchical.hpp"
#include "collectives/algorithms/ring/chain.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/algorithms/tree/binomial.hpp"
#include "collectives/algorithms/tree/binomial_blocks.hpp"
#include "collectives/algorithms/tree/double_tree.hpp"

namespace ringside::collectives {

// A schedule without a root, as Algorithm::make.
template <Schedule (*schedule)(int size, int rank)>
static Schedule rootless(int size, int rank, int /*root*/) {
  return schedule(size, rank);
}

// Rings in the rows and in the columns of a grid that is as square as possible.
static Schedule hierarchical_all_reduce(int size, int rank) {
  return hierarchical_all_reduce_of(size, rank, square_grid(size), ring_reduce_scatter,
                                    ring_all_reduce, ring_all_gather);
}

static Schedule hierarchical_all_to_all(int size, int rank) {
  return hierarchical_all_to_all_of(size, rank, square_grid(size));
}

const std::vector<Algorithm>& all_algorithms() {
  using enum Collective;
  constexpr bool cautionary = true, direct = true;
  static const std::vector<Algorithm> algorithms = {
      {all_reduce, "ring", rootless<ring_all_reduce>},
      {all_reduce, "halving_doubling", rootless<halving_doubling_all_reduce>},
      {all_reduce, "recursive_doubling", rootless<recursive_doubling_all_reduce>},
      {all_reduce, "two_shot", rootless<two_shot_all_reduce>, !cautionary, direct},
      {all_reduce, "one_shot", rootless<one_shot_all_reduce>, !cautionary, direct},
      {all_reduce, "double_tree", rootless<double_tree_all_reduce>},
      {all_reduce, "hierarchical", rootless<hierarchical_all_reduce>},
      {all_reduce, "naive", rootless<naive_all_reduce>, cautionary},
      {reduce_scatter, "ring", rootless<ring_reduce_scatter>},
      {reduce_scatter, "halving", rootless<halving_reduce_scatter>},
      {reduce_scatter, "direct", rootless<direct_reduce_scatter>, !cautionary, direct},
      {reduce_scatter, "pat", rootless<pat_reduce_scatter>},
      {all_gather, "ring", rootless<ring_all_gather>},
      {all_gather, "doubling", rootless<doubling_all_gather>},
      {all_gather, "direct", rootless<direct_all_gather>, !cautionary, direct},
      {all_gather, "bruck", rootless<bruck_all_gather>},
      {all_gather, "pat", rootless<pat_all_gather>},
      {broadcast, "binomial", binomial_broadcast},
      {broadcast, "chain", chain_broadcast},
      {broadcast, "double_tree", double_tree_broadcast},
      {broadcast, "binary_tree", binary_tree_broadcast},
      {broadcast, "linear", linear_broadcast, cautionary},
      {reduce, "binomial", binomial_reduce},
      {reduce, "chain", chain_reduce},
      {reduce, "halving", halving_reduce},
      {reduce, "double_tree", double_tree_reduce},
      {reduce, "binary_tree", binary_tree_reduce},
      {reduce, "linear", linear_reduce, cautionary},
      {gather, "linear", linear_gather},
      {gather, "binomial", binomial_gather},
      {scatter, "linear", linear_scatter},
      {scatter, "binomial", binomial_scatter},
      {all_to_all, "pairwise", rootless<pairwise_all_to_all>, !cautionary, direct},
      {all_to_all, "bruck", rootless<bruck_all_to_all>},
      {all_to_all, "hierarchical", rootless<hierarchical_all_to_all>},
      {barrier, "dissemination", rootless<dissemination_barrier>},
  };
  return algorithms;
}

Collective collective_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Collective collective : all_collectives) {
    if (name_of(collective) == name) return collective;
    names.emplace_back(name_of(collective));
  }
  fail("there is no collective named '{}'{}; there are {}", name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

std::vector<const Algorithm*> algorithms_to_select(Collective collective) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : all_algorithms())
    if (algorithm.collective == collective && !algorithm.cautionary) found.push_back(&algorithm);
  return found;
}

const Algorithm& find_algorithm(Collective collective, std::string_view name) {
  if (is_algorithm_file(name)) {
    const Algorithm& algorithm = algorithm_of_file(name);
    require(algorithm.collective == collective, "{} is an algorithm for {}, not for {}", name,
            name_of(algorithm.collective), name_of(collective));
    return algorithm;
  }
  std::vector<std::string> names;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective) continue;
    if (name.empty() || algorithm.name == name) return algorithm;
    names.emplace_back(algorithm.name);
  }
  fail("there is no algorithm named '{}' for {}{}; there {} {}", name, name_of(collective),
       did_you_mean(name, names), names.size() == 1 ? "is" : "are", fmt::join(names, ", "));
}

constexpr int first_added = 128;  // the lowest number of an algorithm of a file

// By number. Elements of a map stay where they are.
struct Added {
  std::uint64_t content;
  std::string name;
  Algorithm algorithm;
};
static std::mutex adding;
static std::map<int, Added> added;
static std::map<std::string, const Algorithm*, std::less<>> of_files;

std::uint8_t number_of(const Algorithm& algorithm) {
  if (algorithm.number_added != 0) return algorithm.number_added;
  return static_cast<std::uint8_t>(&algorithm - all_algorithms().data());
}

const Algorithm* algorithm_numbered(std::uint8_t number) {
  if (number < all_algorithms().size()) return &all_algorithms()[number];
  const std::lock_guard lock(adding);
  const auto found = added.find(number);
  return found == added.end() ? nullptr : &found->second.algorithm;
}

const Algorithm& add_algorithm(const Algorithm& algorithm, std::uint64_t content) {
  const std::lock_guard lock(adding);
  for (int i = 0; i < first_added; ++i) {
    const int number = first_added + static_cast<int>((content + i) % first_added);
    const auto [at, is_new] =
        added.try_emplace(number, Added{content, std::string(algorithm.name), algorithm});
    Added& entry = at->second;
    if (is_new) {
      entry.algorithm.name = entry.name;
      entry.algorithm.number_added = static_cast<std::uint8_t>(number);
    }
    if (entry.content == content && entry.name == algorithm.name) return entry.algorithm;
  }
  fail("a program holds at most {} algorithms of files", first_added);
}

bool is_algorithm_file(std::string_view name) {
  return name.find_first_of("./") != std::string_view::npos;
}

void set_algorithm_of_file(const std::string& file, const Algorithm& algorithm) {
  const std::lock_guard lock(adding);
  of_files[file] = &algorithm;
}

const Algorithm& algorithm_of_file(std::string_view file) {
  const std::lock_guard lock(adding);
  const auto found = of_files.find(file);
  require(found != of_files.end(),
          "the algorithm {} is not loaded: the program must call collectives::load_algorithms() "
          "(collectives/algorithm_files/algorithm_file.hpp) before it makes a group",
          file);
  return *found->second;
}

bool has_size(const Algorithm& algorithm, int size) {
  return algorithm.only.empty() || std::any_of(algorithm.only.begin(), algorithm.only.end(),
                                               [&](Case only) { return only.size == size; });
}

// Throws Error if a file does not have that case. One rank alone has nothing to do.
static void require_case(const Algorithm& algorithm, int size, int root) {
  if (algorithm.only.empty() || size == 1) return;
  std::vector<std::string> cases;
  for (const Case& only : algorithm.only) {
    if (only.size == size && only.root == root) return;
    cases.push_back(fmt::format("{} ranks", only.size) +
                    (has_root(algorithm.collective) ? fmt::format(" and root {}", only.root) : ""));
  }
  fail("{} is for {}, but was asked to run on {} ranks{}", algorithm.title(), enumerate(cases),
       size, has_root(algorithm.collective) ? fmt::format(" with root {}", root) : "");
}

Schedule make_schedule(const Algorithm& algorithm, int size, int rank, int root) {
  require(size >= 1, "{} needs at least 1 rank, but was asked to run on {}", algorithm.title(),
          size);
  require(root >= 0 && root < size, "the root of a {} on {} ranks must be one of 0 to {}, not {}",
          name_of(algorithm.collective), size, size - 1, root);
  require_case(algorithm, size, root);
  return algorithm.make(size, rank, root);
}

std::vector<Schedule> make_schedules(const Algorithm& algorithm, int size, int root) {
  std::vector<Schedule> schedules = {make_schedule(algorithm, size, 0, root)};
  for (int rank = 1; rank < size; ++rank) schedules.push_back(algorithm.make(size, rank, root));
  return schedules;
}

}  // namespace ringside::collectives

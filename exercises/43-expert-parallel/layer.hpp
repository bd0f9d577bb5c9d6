// Tokens on all ranks, their experts, and what one process makes of both, in fp64.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.hpp"
#include "exercises/43-expert-parallel/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises::expert_parallel {

using experts::Routing;

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr int width = 8;

struct Setting {
  const char* name;
  int experts_per_rank, per_token;
};
constexpr Setting settings[] = {{"random", 2, 2},
                                {"one expert", 2, 1},
                                {"idle experts", 3, 2},
                                {"idle rank", 2, 3},
                                {"at home", 2, 2}};

inline std::uint64_t stream(const Setting& setting, std::string_view what, int which) {
  return hash_of_text(fmt::format("{}, {} of {}", setting.name, what, which));
}

inline Floats normal_numbers(std::size_t count, std::uint64_t seed, std::uint64_t which) {
  Floats made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = static_cast<float>(random_normal(seed, which, i));
  return made;
}

// The indices of the `count` largest, the largest first; of equal ones the lower index first.
inline std::vector<int> largest(std::span<const float> numbers, int count) {
  std::vector<int> index(numbers.size());
  std::iota(index.begin(), index.end(), 0);
  std::stable_sort(index.begin(), index.end(),
                   [&](int a, int b) { return numbers[a] > numbers[b]; });
  index.resize(static_cast<std::size_t>(count));
  return index;
}

inline Doubles softmax(const Doubles& numbers) {
  const double top = *std::max_element(numbers.begin(), numbers.end());
  Doubles p;
  for (const double each : numbers) p.push_back(std::exp(each - top));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& each : p) each /= total;
  return p;
}

// The tokens of a rank.
struct Tokens {
  int count = 0;
  Floats x, dy;
  Routing routing;
  std::span<const float> row(int token) const {
    return std::span(x).subspan(static_cast<std::size_t>(token) * width, width);
  }
};

// Tokens on all ranks, and experts, each a matrix [width, width]: outputs = W row.
class Layer {
 public:
  Layer(const Setting& setting, int ranks, std::uint64_t seed) : setting_(setting), ranks_(ranks) {
    for (int e = 0; e < experts(); ++e)
      matrices_.push_back(normal_numbers(width * width, seed, stream(setting, "expert", e)));
    const std::string_view name = setting.name;
    const auto drawn = [&](int below, std::string_view what, int which) {
      return static_cast<int>(
          random_below(static_cast<std::uint64_t>(below), seed, stream(setting, what, which), 0));
    };
    const int hot = drawn(experts(), "hot", 0), idle = drawn(ranks, "idle", 0);
    for (int rank = 0; rank < ranks; ++rank) {
      Tokens tokens;
      tokens.count = name == "idle rank" && rank == idle ? 0 : 4 + drawn(4, "tokens", rank);
      const auto numbers = static_cast<std::size_t>(tokens.count * width);
      tokens.x = normal_numbers(numbers, seed, stream(setting, "x", rank));
      tokens.dy = normal_numbers(numbers, seed, stream(setting, "dy", rank));
      Floats logits = normal_numbers(static_cast<std::size_t>(tokens.count * experts()), seed,
                                     stream(setting, "logits", rank));
      const auto may_choose = [&](int expert) {
        if (name == "one expert") return expert == hot;
        if (name == "idle experts") return expert % setting.experts_per_rank == 1;
        if (name == "at home") return expert / setting.experts_per_rank == rank;
        return true;
      };
      for (std::size_t i = 0; i < logits.size(); ++i)
        if (!may_choose(static_cast<int>(i) % experts())) logits[i] -= 100;
      for (int t = 0; t < tokens.count; ++t) {
        const auto row = std::span(logits).subspan(static_cast<std::size_t>(t * experts()),
                                                   static_cast<std::size_t>(experts()));
        Doubles of_chosen;
        for (const int expert : largest(row, setting.per_token)) {
          tokens.routing.chosen.push_back(expert);
          of_chosen.push_back(row[expert]);
        }
        for (const double weight : softmax(of_chosen))
          tokens.routing.weights.push_back(static_cast<float>(weight));
      }
      of_ranks.push_back(std::move(tokens));
    }
  }

  std::vector<Tokens> of_ranks;

  int ranks() const { return ranks_; }
  int experts() const { return setting_.experts_per_rank * ranks_; }
  int per_token() const { return setting_.per_token; }
  int first_expert(int rank) const { return rank * setting_.experts_per_rank; }
  int rank_of(int expert) const { return expert / setting_.experts_per_rank; }

  // W row, or its transpose times the row.
  Doubles applied(int expert, std::span<const float> row, bool transposed = false) const {
    Doubles result(width);
    for (int i = 0; i < width; ++i)
      for (int k = 0; k < width; ++k)
        result[i] +=
            static_cast<double>(matrices_[expert][transposed ? k * width + i : i * width + k]) *
            row[k];
    return result;
  }

  std::int64_t rows(int rank, int expert) const {
    return std::ranges::count(of_ranks[rank].routing.chosen, expert);
  }
  std::int64_t rows_for(int expert) const {
    std::int64_t all = 0;
    for (int rank = 0; rank < ranks_; ++rank) all += rows(rank, expert);
    return all;
  }
  // Those for the experts of this rank, from all ranks.
  std::int64_t rows_here(int rank) const {
    std::int64_t all = 0;
    for (int e = first_expert(rank); e < first_expert(rank + 1); ++e) all += rows_for(e);
    return all;
  }
  // Those that leave their rank, and those that come from another.
  std::int64_t rows_sent(int rank) const {
    return std::ranges::count_if(of_ranks[rank].routing.chosen,
                                 [&](int expert) { return rank_of(expert) != rank; });
  }
  std::int64_t rows_received(int rank) const {
    const auto sent = rows_sent(rank),
               mine = static_cast<std::int64_t>(of_ranks[rank].routing.chosen.size()) - sent;
    return rows_here(rank) - mine;
  }

  // The output of the expert of a choice; and dy times it, the gradient of its weight.
  Doubles output(int rank, int choice) const {
    const Tokens& tokens = of_ranks[rank];
    return applied(tokens.routing.chosen[choice], tokens.row(choice / per_token()));
  }
  std::span<const float> dy(int rank, int choice) const {
    return std::span(of_ranks[rank].dy)
        .subspan(static_cast<std::size_t>(choice / per_token() * width), width);
  }
  Doubles weight_gradients(int rank) const {
    Doubles all;
    for (std::size_t c = 0; c < of_ranks[rank].routing.chosen.size(); ++c) {
      const Doubles out = output(rank, static_cast<int>(c));
      all.push_back(
          std::inner_product(out.begin(), out.end(), dy(rank, static_cast<int>(c)).begin(), 0.0));
    }
    return all;
  }

  // What the experts of `rank` make of the rows for them, expert by expert.
  Floats computed(int rank, const Floats& rows, bool transposed) const {
    Floats outputs;
    std::size_t begin = 0;
    for (int e = first_expert(rank); e < first_expert(rank + 1); ++e)
      for (std::int64_t i = rows_for(e); i > 0; --i, begin += width)
        for (const double each : applied(e, std::span(rows).subspan(begin, width), transposed))
          outputs.push_back(static_cast<float>(each));
    return outputs;
  }

 private:
  Setting setting_;
  int ranks_;
  std::vector<Floats> matrices_;
};

}  // namespace ringside::exercises::expert_parallel

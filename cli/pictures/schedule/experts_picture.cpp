#include "cli/pictures/schedule/experts_picture.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autograd/ops/experts.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "cli/pictures/numbers.hpp"

namespace ringside::cli {

namespace {

std::int64_t sum_of(std::span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

}  // namespace

RoutedTokens::RoutedTokens(const ExpertsPicture& picture) : picture_(picture) {
  using autograd::Tensor;
  const std::int64_t experts = picture.experts, tokens = picture.tokens;
  require(experts % picture.ranks == 0,
          "{} experts cannot be divided evenly among {} ranks: choose --experts {}", experts,
          picture.ranks, (experts / picture.ranks + 1) * picture.ranks);
  require(picture.per_token <= experts,
          "a token cannot choose {} of {} experts: choose a smaller --experts-per-token",
          picture.per_token, experts);
  for (int rank = 0; rank < picture.ranks; ++rank) {
    const Tensor logits = Tensor::empty({tokens, experts}, autograd::DType::fp64);
    for (std::int64_t i = 0; i < logits.elements(); ++i)
      logits.data<double>()[i] =
          random_normal(picture.seed, static_cast<std::uint64_t>(rank),
                        static_cast<std::uint64_t>(i)) -
          4 * picture.skew * static_cast<double>(i % experts) / static_cast<double>(experts);
    const Tensor chosen = autograd::choose_experts(logits, picture.per_token);
    const auto choices = chosen.values<std::int32_t>();
    chosen_.emplace_back(choices.begin(), choices.end());
    counts_.push_back(autograd::sort_by_expert(chosen, experts).counts);
  }
}

std::int64_t RoutedTokens::computed(int rank) const {
  const auto each = static_cast<std::size_t>(picture_.experts / picture_.ranks);
  std::int64_t rows = 0;
  for (const auto& counts : counts_)
    rows += sum_of(std::span(counts).subspan(static_cast<std::size_t>(rank) * each, each));
  return rows;
}

// A row for each rank: how many rows it sends to each rank, keeps, and computes.
Table RoutedTokens::table() const {
  const std::int64_t each = picture_.experts / picture_.ranks;
  Table table{{number("rank", "rank"), words("experts", "experts"),
               words("rows to rank 0, 1, ...", "rows_to_ranks"), number("sent", "rows_sent"),
               number("computed", "rows_computed"), number("of the mean", "ratio", fixed(2))}};
  const double mean = static_cast<double>(picture_.tokens * picture_.per_token);
  for (int rank = 0; rank < picture_.ranks; ++rank) {
    std::vector<std::int64_t> to;
    for (int other = 0; other < picture_.ranks; ++other)
      to.push_back(sum_of(
          std::span(counts_[static_cast<std::size_t>(rank)])
              .subspan(static_cast<std::size_t>(other * each), static_cast<std::size_t>(each))));
    table.rows.push_back({rank, fmt::format("{}-{}", rank * each, (rank + 1) * each - 1),
                          fmt::format("{}", fmt::join(to, " ")),
                          sum_of(to) - to[static_cast<std::size_t>(rank)], computed(rank),
                          static_cast<double>(computed(rank)) / mean});
  }
  return table;
}

std::string RoutedTokens::text() const {
  const std::int64_t each = picture_.experts / picture_.ranks;
  std::string text = fmt::format(
      "{} of {} experts for each token; {} on each of {} ranks\n\n"
      "Experts of the tokens (the likeliest first)\n",
      picture_.per_token, picture_.experts, each, picture_.ranks);
  constexpr std::int64_t shown = 8;
  for (int rank = 0; rank < picture_.ranks; ++rank) {
    std::vector<std::string> tokens;
    const auto& chosen = chosen_[static_cast<std::size_t>(rank)];
    for (std::int64_t t = 0; t < std::min(picture_.tokens, shown); ++t) {
      const auto begin = chosen.begin() + t * picture_.per_token;
      tokens.push_back(fmt::format("{}", fmt::join(begin, begin + picture_.per_token, ",")));
    }
    text += fmt::format("  rank {}   {}{}\n", rank, fmt::join(tokens, "  "),
                        picture_.tokens > shown ? "  ..." : "");
  }
  text += "\nRows that each rank has for each expert (| between the ranks that have them)\n  ";
  text += fmt::format("{:9}", "expert");
  const auto line = [&](const auto& number_of) {
    for (std::int64_t e = 0; e < picture_.experts; ++e)
      text += fmt::format("{}{:>4}", e > 0 && e % each == 0 ? " |" : "", number_of(e));
    text += "\n";
  };
  line([](std::int64_t e) { return e; });
  for (int rank = 0; rank < picture_.ranks; ++rank) {
    text += fmt::format("  {:9}", fmt::format("rank {}", rank));
    line([&](std::int64_t e) {
      return counts_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(e)];
    });
  }
  text += fmt::format("  {:9}", "all");
  line([&](std::int64_t e) {
    std::int64_t rows = 0;
    for (const auto& counts : counts_) rows += counts[static_cast<std::size_t>(e)];
    return rows;
  });
  std::int64_t most = 0;
  for (int rank = 0; rank < picture_.ranks; ++rank) most = std::max(most, computed(rank));
  return text +
         fmt::format(
             "\nThe all-to-all: a row of d numbers for each choice, and its output back\n"
             "{}\nThe busiest rank computes {:.2f} times the mean, and the others wait for "
             "it.\n",
             table().text(),
             static_cast<double>(most) / static_cast<double>(picture_.tokens * picture_.per_token));
}

Json RoutedTokens::json() const {
  return {{"ranks", picture_.ranks},
          {"experts", picture_.experts},
          {"experts_per_token", picture_.per_token},
          {"tokens", picture_.tokens},
          {"chosen", chosen_},
          {"counts", counts_},
          {"by_rank", table().json()}};
}

}  // namespace ringside::cli

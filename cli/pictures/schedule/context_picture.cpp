#include "cli/pictures/schedule/context_picture.hpp"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/pictures/svg.hpp"

namespace ringside::cli {
namespace {

using namespace context_parallel;

enum class Masked { none, half, all };

// A pair of pieces of the sequence.
struct Pair {
  int rank = 0;  // that has the queries
  int step = 0;  // of the ring, if not all is masked
  Masked masked = Masked::all;
};

// [queries][keys]
std::vector<std::vector<Pair>> pairs_of(const ContextPicture& picture) {
  const auto count = static_cast<std::size_t>(piece_count(picture.order, picture.ranks));
  std::vector<std::vector<Pair>> pairs(count, std::vector<Pair>(count));
  for (int rank = 0; rank < picture.ranks; ++rank) {
    const auto queries = pieces_of(picture.order, picture.ranks, rank);
    for (const int query : queries)
      for (Pair& pair : pairs[static_cast<std::size_t>(query)]) pair.rank = rank;
    for (int step = 0; step < picture.ranks; ++step) {
      const RingStep at = ring_step(picture.order, picture.ranks, rank, step);
      const auto keys = pieces_of(picture.order, picture.ranks, at.keys_of);
      for (int q = 0; q < at.queries.count; ++q)
        for (int k = 0; k < at.keys.count; ++k) {
          const int query = queries[static_cast<std::size_t>(at.queries.first + q)],
                    key = keys[static_cast<std::size_t>(at.keys.first + k)];
          if (at.causal && key > query) continue;
          pairs[static_cast<std::size_t>(query)][static_cast<std::size_t>(key)] = {
              rank, step, key == query ? Masked::half : Masked::none};
        }
    }
  }
  return pairs;
}

std::string keys_met(const ContextPicture& picture, int rank) {
  std::vector<std::string> met;
  for (int step = 0; step < picture.ranks; ++step) {
    const RingStep at = ring_step(picture.order, picture.ranks, rank, step);
    met.push_back(at.queries.count == 0 ? "-" : std::to_string(at.keys_of));
  }
  return fmt::format("{}", fmt::join(met, " "));
}

}  // namespace

std::string blocks_text(const ContextPicture& picture) {
  const auto pairs = pairs_of(picture);
  std::string text = "queries\\keys";
  for (std::size_t key = 0; key < pairs.size(); ++key)
    text += fmt::format("{}{:>3}", key == 0 ? "" : " ", key);
  text += "\n";
  for (std::size_t query = 0; query < pairs.size(); ++query) {
    text += fmt::format("{:>2} of rank {}", query, pairs[query].front().rank);
    for (const Pair& pair : pairs[query])
      text += pair.masked == Masked::all
                  ? "  . "
                  : fmt::format("{:>3}{}", pair.step, pair.masked == Masked::half ? '\\' : ' ');
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

Table ranks_of(const ContextPicture& picture) {
  Table table{{number("rank", "rank"), words("pieces", "pieces"),
               words("keys of rank, step by step", "keys_of_rank"),
               number("pairs", "visible_pairs", fixed(0)),
               number("of rank 0's", "ratio", fixed(2))}};
  const auto pairs = [&](int rank) {
    return visible_pairs(picture.order, picture.ranks, rank, picture.tokens);
  };
  for (int rank = 0; rank < picture.ranks; ++rank)
    table.rows.push_back(
        {rank, fmt::format("{}", fmt::join(pieces_of(picture.order, picture.ranks, rank), " ")),
         keys_met(picture, rank), pairs(rank),
         static_cast<double>(pairs(rank)) / static_cast<double>(pairs(0))});
  return table;
}

std::string svg_of(const ContextPicture& picture) {
  constexpr int cell = 40, left = 110, top = 40;
  const auto pairs = pairs_of(picture);
  const int count = static_cast<int>(pairs.size());
  std::string content =
      fmt::format("<text x=\"{}\" y=\"16\" text-anchor=\"middle\">pieces of keys</text>\n",
                  left + count * cell / 2);
  for (int i = 0; i < count; ++i) {
    content += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                           left + i * cell + cell / 2, top - 6, i);
    content += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}, rank {}</text>\n",
                           left - 8, top + i * cell + cell / 2 + 5, i,
                           pairs[static_cast<std::size_t>(i)].front().rank);
  }
  for (int q = 0; q < count; ++q)
    for (int k = 0; k < count; ++k) {
      const Pair& pair = pairs[static_cast<std::size_t>(q)][static_cast<std::size_t>(k)];
      const int x = left + k * cell, y = top + q * cell;
      if (pair.masked == Masked::all) {
        content +=
            fmt::format("<rect class=\"masked\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                        x, y, cell - 2, cell - 2);
        continue;
      }
      // A half masked block is a triangle below the diagonal.
      const std::string shape =
          pair.masked == Masked::half
              ? fmt::format("M{} {}V{}H{}Z", x, y, y + cell - 2, x + cell - 2)
              : fmt::format("M{} {}h{}v{}h-{}Z", x, y, cell - 2, cell - 2, cell - 2);
      content += fmt::format(
          "<path style=\"fill:var(--c{0})\" d=\"{1}\"><title>rank {2} in step {3}: queries of "
          "piece {4}, keys of piece {5}</title></path><text class=\"step\" x=\"{6}\" y=\"{7}\" "
          "text-anchor=\"middle\">{3}</text>\n",
          pair.rank % 8, shape, pair.rank, pair.step, q, k,
          x + (pair.masked == Masked::half ? cell / 3 : cell / 2),
          y + (pair.masked == Masked::half ? 3 * cell / 4 : cell / 2 + 5));
    }
  return svg_file(fmt::format("Ring attention on {} ranks, {} order: the step that computes each "
                              "block",
                              picture.ranks, name_of(picture.order)),
                  left + count * cell + 10, top + count * cell + 10,
                  "text { font: 13px system-ui, sans-serif; fill: var(--ink); }\n"
                  ".masked { fill: none; stroke: var(--c9); } .step { fill: var(--paper); }",
                  content);
}

Json json_of(const ContextPicture& picture) {
  Json blocks = Json::array();
  for (int rank = 0; rank < picture.ranks; ++rank)
    for (int step = 0; step < picture.ranks; ++step) {
      const RingStep at = ring_step(picture.order, picture.ranks, rank, step);
      const auto pieces = [](const std::vector<int>& of, const PieceRange& range) {
        return std::vector<int>(of.begin() + range.first, of.begin() + range.first + range.count);
      };
      blocks.push_back(
          {{"rank", rank},
           {"step", step},
           {"keys_of_rank", at.keys_of},
           {"queries", pieces(pieces_of(picture.order, picture.ranks, rank), at.queries)},
           {"keys", pieces(pieces_of(picture.order, picture.ranks, at.keys_of), at.keys)},
           {"causal", at.causal}});
    }
  return {{"ranks", picture.ranks},
          {"order", name_of(picture.order)},
          {"tokens", picture.tokens},
          {"pieces", piece_count(picture.order, picture.ranks)},
          {"by_rank", ranks_of(picture).json()},
          {"blocks", blocks}};
}

}  // namespace ringside::cli

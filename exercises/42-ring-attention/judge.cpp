// Judges ring attention: the outputs against plain attention in fp64, the scores that a rank
// computes, and what travels. The pieces of the sequence lie where the student's own order puts
// them, so that an unbalanced order shows as work, not as wrong numbers.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "collectives/execution/traffic.hpp"
#include "exercises/42-ring-attention/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

using context::Partial;
using Rows = std::vector<float>;
using Floats = std::span<const float>;

// ---- Plain attention in fp64 ----

double score(Floats queries, std::size_t i, Floats keys, std::size_t j, std::size_t width) {
  double dot = 0;
  for (std::size_t c = 0; c < width; ++c)
    dot += double{queries[i * width + c]} * double{keys[j * width + c]};
  return dot / std::sqrt(static_cast<double>(width));
}

// One query and the keys that it sees: [key] scores, [key, width] values.
struct Row {
  double shift = -std::numeric_limits<double>::infinity(), total = 0;
  std::vector<double> sum;
  double log_sum() const { return shift + std::log(total); }
  double y(std::size_t c) const { return sum[c] / total; }
};
Row row_of(const std::vector<double>& scores, Floats values, std::size_t width) {
  Row row{.sum = std::vector<double>(width)};
  if (scores.empty()) return row;
  row.shift = double{static_cast<float>(*std::max_element(scores.begin(), scores.end()))};
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - row.shift);
    row.total += weight;
    for (std::size_t c = 0; c < width; ++c) row.sum[c] += weight * double{values[j * width + c]};
  }
  return row;
}

// What students get as `attend`.
Partial attend(Floats queries, Floats keys, Floats values, std::size_t width, int first_query,
               int first_key) {
  require(queries.size() % width == 0 && keys.size() % width == 0 && keys.size() == values.size(),
          "attend: expected rows of {} numbers, and as many keys as values; got {} numbers of "
          "queries, {} of keys and {} of values",
          width, queries.size(), keys.size(), values.size());
  const std::size_t n = queries.size() / width;
  const int m = static_cast<int>(keys.size() / width);
  Partial partial = context::nothing(n, width);
  for (std::size_t i = 0; i < n; ++i) {
    const int seen = std::clamp(first_query + static_cast<int>(i) - first_key + 1, 0, m);
    std::vector<double> scores;
    for (std::size_t j = 0; j < static_cast<std::size_t>(seen); ++j)
      scores.push_back(score(queries, i, keys, j, width));
    const Row row = row_of(scores, values, width);
    partial.shift[i] = static_cast<float>(row.shift);
    partial.total[i] = static_cast<float>(row.total);
    for (std::size_t c = 0; c < width; ++c)
      partial.sum[i * width + c] = static_cast<float>(row.sum[c]);
  }
  return partial;
}

bool is_right(const Json& seen, double expected) {
  return seen.is_number() &&
         std::abs(seen.get<double>() - expected) <= 1e-4 * (1 + std::abs(expected));
}

std::string in_words(const Json& number) {
  return number.is_number() ? fmt::format("{:.6g}", number.get<double>()) : "no finite number";
}

// ---- Whole sequences ----

struct Sequence {
  std::size_t tokens;  // of a piece
  std::size_t width;
  double sharpness;  // of the scores: with 30, exp() of many of them overflows fp32
};
constexpr Sequence sequences[] = {{1, 4, 1}, {5, 8, 1}, {3, 6, 30}}, one_sequence = {4, 8, 1};

// "q", "k" or "v" of `count` tokens from `first` on.
Rows rows_of(const Sequence& sequence, std::uint64_t seed, const char* name, std::size_t first,
             std::size_t count) {
  Rows rows(count * sequence.width);
  const double scale = *name == 'q' ? sequence.sharpness : 1;
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<float>(scale * random_normal(seed, hash_of_text(name) + sequence.tokens,
                                                       first * sequence.width + i));
  return rows;
}

// ---- The order of the pieces ----

constexpr int most_ranks = 8;
using Pieces = std::vector<std::vector<int>>;  // [rank]

Pieces pieces_of_student(int ranks) {
  Pieces pieces;
  for (int rank = 0; rank < ranks; ++rank) pieces.push_back(student_pieces_of(ranks, rank));
  return pieces;
}

// Whether each piece is on one rank. "" if so.
std::string fault_of_pieces(const Pieces& pieces) {
  const int ranks = static_cast<int>(pieces.size());
  std::set<int> held;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<int>& own = pieces[static_cast<std::size_t>(rank)];
    if (own.size() != 2 || own[0] >= own[1] || own[0] < 0 || own[1] >= 2 * ranks)
      return fmt::format(
          "p = {}: rank {} holds the pieces {{{}}}, expected two of 0 to {}, ascending", ranks,
          rank, fmt::join(own, ", "), 2 * ranks - 1);
    held.insert(own.begin(), own.end());
  }
  for (int piece = 0; piece < 2 * ranks; ++piece)
    if (!held.contains(piece)) return fmt::format("p = {}: piece {} is on no rank", ranks, piece);
  return "";
}

Json collect_order(World&) {
  Json seen = Json::array();
  for (int ranks = 1; ranks <= most_ranks; ++ranks) seen.push_back(pieces_of_student(ranks));
  return seen;
}

// Piece i of the queries sees the pieces 0 to i of the keys.
Verdict judge_order(const Run& run) {
  for (const Json& each : run.ranks[0]) {
    const auto pieces = each.get<Pieces>();
    if (const std::string fault = fault_of_pieces(pieces); !fault.empty()) return {{fault}};
    const int ranks = static_cast<int>(pieces.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int>& own = pieces[static_cast<std::size_t>(rank)];
      if (const int blocks = own[0] + own[1] + 2; blocks != 2 * ranks + 1)
        return {
            {fmt::format("p = {}: rank {} with the pieces {} and {} computes {} blocks, "
                         "expected {} on each rank",
                         ranks, rank, own[0], own[1], blocks, 2 * ranks + 1)}};
    }
  }
  return {};
}

// ---- The merge ----

// Queries at the positions 10 to 13, and blocks of keys that are merged in this order. A block of
// keys from 12 on is partly in the future, one from 20 on wholly. `level` is added to all scores of
// a block: exp(200) and exp(100) overflow fp32.
struct Block {
  int first_key;
  float level;
};
struct Merge {
  const char* name;
  std::vector<Block> blocks;
};
const std::vector<Merge>& merges() {
  static const std::vector<Merge> all = {
      {"two blocks", {{0, 0}, {3, 0}}},
      {"two blocks with large scores", {{0, 200}, {3, 198}}},
      {"the second block has larger scores", {{0, -100}, {3, 100}}},
      {"the first block has larger scores", {{0, 100}, {3, -100}}},
      {"two blocks that no query sees", {{20, 0}, {23, 0}}},
      {"a block, and one that some queries do not see", {{6, 0}, {12, 0}}},
      {"a block that some queries do not see, and another", {{12, 0}, {6, 0}}},
      {"four blocks", {{9, 1}, {0, -2}, {12, 0}, {6, 2}}},
  };
  return all;
}
constexpr Sequence merged_rows = {4, 3, 1};
constexpr int first_query = 10, block_keys = 3;

Rows rows_of_merge(std::uint64_t seed, const char* name, int first, std::size_t count) {
  return rows_of(merged_rows, seed, name, static_cast<std::size_t>(first), count);
}

Json collect_merge(World& world) {
  Json seen = Json::array();
  for (const Merge& merge : merges()) {
    world.doing(merge.name);
    const Rows queries = rows_of_merge(world.seed(), "q", first_query, merged_rows.tokens);
    Partial all = context::nothing(merged_rows.tokens, merged_rows.width);
    for (const auto& [first_key, level] : merge.blocks) {
      Partial block = attend(queries, rows_of_merge(world.seed(), "k", first_key, block_keys),
                             rows_of_merge(world.seed(), "v", first_key, block_keys),
                             merged_rows.width, first_query, first_key);
      for (float& each : block.shift) each += level;
      student_merge(all, block);
    }
    const std::size_t n = merged_rows.tokens, sums = n * merged_rows.width;
    require(all.shift.size() == n && all.total.size() == n && all.sum.size() == sums,
            "after merge() of {} queries of width {} `seen` has {} shifts, {} totals and {} sums: "
            "expected {}, {} and {}",
            n, merged_rows.width, all.shift.size(), all.total.size(), all.sum.size(), n, n, sums);
    Json log_sums = Json::array(), outputs = Json::array(), empty = Json::array();
    for (std::size_t i = 0; i < n; ++i) {
      const Floats sum = Floats(all.sum).subspan(i * merged_rows.width, merged_rows.width);
      log_sums.push_back(all.shift[i] + std::log(all.total[i]));
      empty.push_back((all.shift[i] == -context::infinity || all.total[i] == 0) &&
                      std::all_of(sum.begin(), sum.end(), [](float each) { return each == 0; }));
      for (const float each : sum) outputs.push_back(each / all.total[i]);
    }
    seen.push_back({{"log_sums", log_sums},
                    {"y", outputs},
                    {"empty", empty},
                    {"shift", all.shift},
                    {"total", all.total}});
  }
  return seen;
}

Verdict judge_merge(const Run& run) {
  for (std::size_t m = 0; m < merges().size(); ++m) {
    const Merge& merge = merges()[m];
    const Json& seen = run.ranks[0].at(m);
    const Rows queries = rows_of_merge(run.seed, "q", first_query, merged_rows.tokens);
    for (std::size_t i = 0; i < merged_rows.tokens; ++i) {
      std::vector<double> scores;
      Rows values;
      for (const auto& [first_key, level] : merge.blocks)
        for (int key = first_key; key < first_key + block_keys; ++key) {
          if (key > first_query + static_cast<int>(i)) continue;
          scores.push_back(double{level} + score(queries, i, rows_of_merge(run.seed, "k", key, 1),
                                                 0, merged_rows.width));
          const Rows value = rows_of_merge(run.seed, "v", key, 1);
          values.insert(values.end(), value.begin(), value.end());
        }
      const Row expected = row_of(scores, values, merged_rows.width);
      const std::string where = fmt::format("{}, query {}: ", merge.name, i);
      if (scores.empty()) {
        if (!seen.at("empty").at(i).get<bool>())
          return {{fmt::format(
              "{}it sees no key, but total is {} and shift {}, expected as in nothing()", where,
              in_words(seen.at("total").at(i)), in_words(seen.at("shift").at(i)))}};
        continue;
      }
      if (const Json& log_sum = seen.at("log_sums").at(i); !is_right(log_sum, expected.log_sum()))
        return {{fmt::format("{}shift + log(total) is {}, expected {:.6g}", where,
                             in_words(log_sum), expected.log_sum())}};
      for (std::size_t c = 0; c < merged_rows.width; ++c)
        if (const Json& y = seen.at("y").at(i * merged_rows.width + c); !is_right(y, expected.y(c)))
          return {{fmt::format("{}sum / total is {} at [{}], expected {:.6g}", where, in_words(y),
                               c, expected.y(c))}};
    }
  }
  return {};
}

// ---- Round the ring ----

// The two pieces of a rank, one after the other.
Rows rows_of_rank(const Sequence& sequence, std::uint64_t seed, const char* name,
                  const std::vector<int>& pieces) {
  Rows rows;
  for (const int piece : pieces) {
    const Rows more = rows_of(sequence, seed, name,
                              static_cast<std::size_t>(piece) * sequence.tokens, sequence.tokens);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

// One call of the student's function: the output, and what it did.
Json run_of_student(World& world, const Sequence& sequence, const std::vector<int>& pieces,
                    std::chrono::milliseconds pause) {
  const std::size_t width = sequence.width;
  world.doing(fmt::format("ring_attention, pieces [{}, {}]", sequence.tokens, width));
  world.group().barrier();
  world.calls().clear();
  const auto before = world.group().traffic().payload_bytes_sent;
  const auto received = [&] {
    std::uint64_t bytes = 0;
    for (const ObservedCall& each : world.calls().calls())
      if (each.call.collective == collectives::Collective::point_to_point &&
          each.call.peer == world.rank())
        bytes += each.bytes();
    return bytes;
  };
  Json blocks = Json::array();
  const context::Attend counted = [&](Floats queries, Floats keys, Floats values, int query,
                                      int key) {
    std::this_thread::sleep_for(pause);  // what has been started meanwhile arrives
    const Partial partial = attend(queries, keys, values, width, query, key);
    blocks.push_back({{"pairs", queries.size() / width * (keys.size() / width)},
                      {"key_piece", key / static_cast<int>(sequence.tokens)},
                      {"received", received()}});
    return partial;
  };
  const Rows q = rows_of_rank(sequence, world.seed(), "q", pieces),
             k = rows_of_rank(sequence, world.seed(), "k", pieces),
             v = rows_of_rank(sequence, world.seed(), "v", pieces);
  const Rows y = student_ring_attention(q, k, v, static_cast<int>(width), counted, world.group());
  Json others = Json::array();
  for (const ObservedCall& each : world.calls().calls())
    if (each.call.collective != collectives::Collective::point_to_point)
      others.push_back(collectives::describe(each.call));
  return {{"y", y},
          {"blocks", blocks},
          {"sent", world.group().traffic().payload_bytes_sent - before},
          {"others", others}};
}

template <bool numbers_only>
Json collect_runs(World& world) {
  const Pieces pieces = pieces_of_student(world.size());
  Json seen = {{"pieces", pieces}, {"runs", Json::array()}};
  if (!fault_of_pieces(pieces).empty()) return seen;
  const std::vector<int>& own = pieces[static_cast<std::size_t>(world.rank())];
  const auto run = [&](const Sequence& sequence, std::chrono::milliseconds pause) {
    seen["runs"].push_back(run_of_student(world, sequence, own, pause));
  };
  if (numbers_only)
    for (const Sequence& sequence : sequences) run(sequence, {});
  else
    run(one_sequence, std::chrono::milliseconds(20));
  return seen;
}

Verdict fault_of_order(const Run& run) {
  return first_fault(
      run, [](int, const Json& seen) { return fault_of_pieces(seen.at("pieces").get<Pieces>()); });
}

std::string fault_of_values(const Sequence& sequence, int ranks, std::uint64_t seed,
                            const std::vector<int>& pieces, const Json& seen) {
  const std::size_t width = sequence.width;
  if (seen.size() != 2 * sequence.tokens * width)
    return fmt::format("pieces [{}, {}]: y has {} numbers, expected {}", sequence.tokens, width,
                       seen.size(), 2 * sequence.tokens * width);
  const std::size_t tokens = 2 * static_cast<std::size_t>(ranks) * sequence.tokens;
  const Rows q = rows_of(sequence, seed, "q", 0, tokens),
             k = rows_of(sequence, seed, "k", 0, tokens),
             v = rows_of(sequence, seed, "v", 0, tokens);
  for (std::size_t row = 0; row < 2 * sequence.tokens; ++row) {
    const std::size_t token =
        static_cast<std::size_t>(pieces[row / sequence.tokens]) * sequence.tokens +
        row % sequence.tokens;
    std::vector<double> scores;
    for (std::size_t j = 0; j <= token; ++j) scores.push_back(score(q, token, k, j, width));
    const Row expected = row_of(scores, v, width);
    for (std::size_t c = 0; c < width; ++c)
      if (const Json& y = seen.at(row * width + c); !is_right(y, expected.y(c)))
        return fmt::format(
            "pieces [{}, {}]: y of token {}, in piece {}, is {} at [{}], expected {:.6g}",
            sequence.tokens, width, token, pieces[row / sequence.tokens], in_words(y), c,
            expected.y(c));
  }
  return "";
}

Verdict judge_values(const Run& run) {
  if (const Verdict fault = fault_of_order(run); !fault.says.empty()) return fault;
  return first_fault(run, [&](int rank, const Json& seen) -> std::string {
    const auto pieces = seen.at("pieces").get<Pieces>();
    for (std::size_t s = 0; s < std::size(sequences); ++s)
      if (const std::string fault = fault_of_values(sequences[s], run.world, run.seed,
                                                    pieces[static_cast<std::size_t>(rank)],
                                                    seen.at("runs").at(s).at("y"));
          !fault.empty())
        return fault;
    return "";
  });
}

// A rank computes 2 p + 1 blocks: 2 p - 1 whole ones, and two whose upper half is masked, which may
// be left out.
Verdict judge_work(const Run& run) {
  if (const Verdict fault = fault_of_order(run); !fault.says.empty()) return fault;
  const std::uint64_t n = one_sequence.tokens, p = static_cast<std::uint64_t>(run.world);
  return first_fault(run, [&](int rank, const Json& seen) -> std::string {
    const auto own =
        seen.at("pieces").at(static_cast<std::size_t>(rank)).get<std::vector<std::uint64_t>>();
    std::uint64_t pairs = 0;
    for (const Json& block : seen.at("runs").at(0).at("blocks"))
      pairs += block.at("pairs").get<std::uint64_t>();
    if (pairs > (2 * p + 1) * n * n)
      return fmt::format(
          "computes {} scores, expected at most {}: {} blocks of {} x {}, on every rank", pairs,
          (2 * p + 1) * n * n, 2 * p + 1, n, n);
    if (const std::uint64_t visible = (own[0] + own[1]) * n * n + n * (n + 1); pairs < visible)
      return fmt::format("attend() computes {} scores, but the queries of pieces {} and {} see {}",
                         pairs, own[0], own[1], visible);
    return "";
  });
}

// Keys and values of a rank are sent p - 1 times, and while attend() computes with those of one
// rank, at most those of one more have come.
Verdict judge_bytes(const Run& run) {
  if (const Verdict fault = fault_of_order(run); !fault.says.empty()) return fault;
  const std::uint64_t block = 2 * 2 * one_sequence.tokens * one_sequence.width * sizeof(float),
                      others = static_cast<std::uint64_t>(run.world) - 1;
  return first_fault(run, [&](int rank, const Json& seen) -> std::string {
    const auto pieces = seen.at("pieces").get<Pieces>();
    const Json& what = seen.at("runs").at(0);
    if (!what.at("others").empty())
      return fmt::format("made an {}, expected messages between two ranks",
                         what.at("others").at(0).get<std::string>());
    if (what.at("sent") != others * block)
      return fmt::format(
          "sent {} bytes, expected {}: its keys and values are {} bytes, and travel {} time{}",
          what.at("sent").get<std::uint64_t>(), others * block, block, others,
          others == 1 ? "" : "s");
    std::vector<int> met;  // the other ranks whose keys were here, in order
    for (const Json& each : what.at("blocks")) {
      const int piece = each.at("key_piece");
      const auto owner = static_cast<int>(std::find_if(pieces.begin(), pieces.end(),
                                                       [&](const std::vector<int>& two) {
                                                         return two[0] == piece || two[1] == piece;
                                                       }) -
                                          pieces.begin());
      if (owner == rank) continue;
      if (std::find(met.begin(), met.end(), owner) == met.end()) met.push_back(owner);
      if (const std::uint64_t here = each.at("received"); here > (met.size() + 1) * block)
        return fmt::format(
            "when it computes with the keys of rank {}, the {} it meets, keys and values of {} "
            "ranks have come, expected at most {}: one to compute with, and one that arrives",
            owner, met.size() == 1 ? "first that" : fmt::format("{}th that", met.size()),
            here / block, met.size() + 1);
    }
    return "";
  });
}

const Judge judge("42-ring-attention", {{"order", collect_order, judge_order},
                                        {"merge", collect_merge, judge_merge},
                                        {"values", collect_runs<true>, judge_values},
                                        {"work", collect_runs<false>, judge_work},
                                        {"bytes", collect_runs<false>, judge_bytes}});

}  // namespace
}  // namespace ringside::exercises

// Judges attention in tiles: against the definition in fp64, where the diagonal cuts a tile, with
// threads that take turns, and in bf16.
#include <algorithm>
#include <cmath>

#include "autograd/tensor/bf16.hpp"
#include "base/random.hpp"
#include "exercises/12-flash-tile/interface.hpp"
#include "exercises/judge/autograd/attention.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {
namespace {

constexpr std::int64_t tile = 64;  // queries, and keys

AttentionShape shape_of(const AttentionRun& run) {
  return {run.batch, run.heads, run.kv_heads, run.queries, run.keys, run.head_size};
}

std::string text(const AttentionRun& run) {
  return fmt::format("{} of {} numbers{}", shape_of(run).text(), run.head_size,
                     run.bf16 ? ", bf16" : "");
}

AttentionInputs inputs_of(const AttentionRun& run, std::uint64_t seed) {
  const auto numbers = [&](std::int64_t heads, std::int64_t tokens, std::uint64_t which,
                           float factor) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < run.batch * heads * tokens * run.head_size; ++i) {
      const auto random = 2 * random_uniform(seed, which, static_cast<std::uint64_t>(i)) - 1;
      const float number = factor * static_cast<float>(random);
      all.push_back(run.bf16 ? static_cast<float>(autograd::Bf16(number)) : number);
    }
    return all;
  };
  return {numbers(run.heads, run.queries, 1, run.spread), numbers(run.kv_heads, run.keys, 2, 1),
          numbers(run.kv_heads, run.keys, 3, 1)};
}

// y of one row, and then the logarithm of its sum, which is fp32 in every run.
std::string fault_of_row(const std::string& where, const std::vector<double>& seen,
                         const std::vector<double>& expected, double tolerance,
                         double tolerance_of_sums) {
  const std::size_t d = expected.size() - 1;
  const auto wrong = [&](double factor) {  // the first number that is not `factor` times its own
    std::size_t n = 0;
    while (n < d &&
           std::abs(seen[n] - factor * expected[n]) <= tolerance * (1 + std::abs(expected[n])))
      ++n;
    return n;
  };
  if (const std::size_t n = wrong(1); n < d) {
    const std::string says =
        fmt::format("y[{}, {}] is {:.6g}, expected {:.6g}", where, n, seen[n], expected[n]);
    if (std::isnan(seen[n]))
      return says +
             "; shared memory, and what is behind the last row of a head, are nan before "
             "they are written";
    const double ratio = seen[n] / expected[n];
    return wrong(ratio) < d
               ? says
               : says + fmt::format("; all of its row is {:.4g} times what it should be", ratio);
  }
  if (std::abs(seen[d] - expected[d]) <= tolerance_of_sums * (1 + std::abs(expected[d]))) return "";
  return fmt::format("log_sums[{}] is {:.6g}, expected {:.6g}; y is right there", where, seen[d],
                     expected[d]);
}

// The first row that is wrong.
std::string fault_of(const AttentionRun& run, const Json& seen, std::uint64_t seed) {
  const AttentionInputs in = inputs_of(run, seed);
  const DefinedAttention defined = attention_by_definition(
      shape_of(run),
      {{in.q.begin(), in.q.end()}, {in.k.begin(), in.k.end()}, {in.v.begin(), in.v.end()}, {}});
  const std::int64_t d = run.head_size;
  bool one_tile_is_right = false;
  for (std::int64_t row = 0; row < run.batch * run.heads * run.queries; ++row) {
    const std::int64_t head = row / run.queries, query = row % run.queries;
    std::vector<double> found, expected(&defined.y[row * d], &defined.y[row * d] + d);
    expected.push_back(defined.log_sums[row]);
    for (const Json& each : seen.at("rows").at(row)) found.push_back(number_of(each));
    const double rounding = 1e-5 * std::max(1.0, run.spread / 4.0);  // grows with the scores
    const std::string fault =
        fault_of_row(fmt::format("{}, {}, {}", head / run.heads, head % run.heads, query), found,
                     expected, run.bf16 ? 1e-2 : rounding, rounding);
    const std::int64_t sees = shape_of(run).sees(query);
    if (fault.empty()) one_tile_is_right = one_tile_is_right || sees <= tile;
    if (!fault.empty() && sees > tile && one_tile_is_right && run.queries == run.keys)
      return fmt::format(
          "{}: the queries that see at most {} keys, one tile, are right; query {} "
          "sees {}: {}: was what it had summed before the larger score came scaled "
          "down?",
          text(run), tile, query, sees, fault);
    if (!fault.empty()) return text(run) + ": " + fault;
  }
  if (const int strays = seen.at("strays"); strays > 0)
    return fmt::format("{}: {} numbers are written behind the last query of a head", text(run),
                       strays);
  return "";
}

template <const auto& runs>
Json collect(World& world) {
  Json all = Json::array();
  for (const AttentionRun& run : runs) {
    world.doing(text(run));
    const AttentionOutputs seen = student_attention_forward(run, inputs_of(run, world.seed()));
    Json rows = Json::array();
    for (std::size_t row = 0, i = 0; row < seen.log_sums.size(); ++row) {
      Json& numbers = rows.emplace_back(Json::array());
      for (int n = 0; n < run.head_size; ++n) numbers.push_back(json_of(seen.y.at(i++)));
      numbers.push_back(json_of(seen.log_sums[row]));
    }
    all.push_back({{"rows", rows}, {"strays", seen.strays}, {"syncs", seen.syncs}});
  }
  return all;
}

template <const auto& runs>
Verdict judge_numbers(const Run& run) {
  for (std::size_t i = 0; i < std::size(runs); ++i)
    if (std::string fault = fault_of(runs[i], run.ranks[0].at(i), run.seed); !fault.empty())
      return {{std::move(fault)}};
  return {};
}

// As many keys as queries: in each tile that a query takes it sees a key.
constexpr AttentionRun whole[] = {
    {1, 1, 1, 5, 5, 4}, {2, 4, 2, 65, 65, 8}, {1, 1, 1, 130, 130, 40}, {1, 1, 1, 70, 70, 16, 200}};
// More keys than queries: some queries see nothing of the last tile.
constexpr AttentionRun cut[] = {{1, 2, 1, 33, 70, 8}, {2, 1, 1, 64, 130, 8}, {1, 1, 1, 70, 200, 5}};
constexpr AttentionRun rounded[] = {{1, 2, 1, 65, 130, 16, 0.5f, true},
                                    {1, 1, 1, 130, 130, 8, 4, true}};
// One block, three tiles of keys.
constexpr AttentionRun in_turn[] = {{1, 1, 1, 40, 130, 8, 4, false, 3, false, false},
                                    {1, 1, 1, 40, 130, 8, 4, false, 3, true, false},
                                    {1, 1, 1, 40, 130, 8, 4, false, 3, false, true},
                                    {1, 1, 1, 40, 130, 8, 4, false, 3, true, true}};

Verdict judge_syncs(const Run& run) {
  for (std::size_t i = 0; i < std::size(in_turn); ++i) {
    const std::string fault = fault_of(in_turn[i], run.ranks[0].at(i), run.seed);
    if (!fault.empty())
      return {{fmt::format(
          "3 threads, which run one at a time from sync() to sync(), {}; copies arrive {}: {}. "
          "Does "
          "a thread read what another has not written yet, or write over what another still reads?",
          in_turn[i].last_first ? "thread 2 first" : "thread 0 first",
          in_turn[i].copies_at_once ? "at once" : "as late as they may", fault)}};
  }
  if (const int seen = run.ranks[0].at(0).at("syncs"); seen > 3 * 3 + 2)
    return {
        {fmt::format("a block that takes 3 tiles of keys calls sync() {} times, expected 11: "
                     "3 in each tile, and 2 at the end",
                     seen)}};
  return {};
}

const Judge judge("12-flash-tile", {{"values", collect<whole>, judge_numbers<whole>},
                                    {"masked", collect<cut>, judge_numbers<cut>},
                                    {"syncs", collect<in_turn>, judge_syncs},
                                    {"bf16", collect<rounded>, judge_numbers<rounded>}});

}  // namespace
}  // namespace ringside::exercises

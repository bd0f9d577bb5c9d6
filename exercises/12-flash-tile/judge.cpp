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

// One row: its numbers of y, and then the logarithm of its sum, which is fp32 in every run.
std::string fault_of_row(const AttentionRun& run, const std::string& where,
                         const std::vector<double>& seen, const std::vector<double>& expected) {
  const double rounding = 1e-5 * std::max(1.0, run.spread / 4.0);  // grows with the scores
  const std::size_t d = expected.size() - 1;
  const auto wrong = [&](double factor) {  // the first number that is not `factor` times its own
    std::size_t n = 0;
    for (; n < d; ++n)
      if (!(std::abs(seen[n] - factor * expected[n]) <=
            (run.bf16 ? 1e-2 : rounding) * (1 + std::abs(expected[n]))))
        break;
    return n;
  };
  const std::size_t n = wrong(1);
  if (n == d && std::abs(seen[d] - expected[d]) <= rounding * (1 + std::abs(expected[d])))
    return "";
  const std::string is = fmt::format(" is {:.6g}, expected {:.6g}", seen[n], expected[n]);
  if (n == d) return fmt::format("log_sums[{}]{}; y is right there", where, is);
  const std::string says = fmt::format("y[{}, {}]{}", where, n, is);
  const double ratio = seen[n] / expected[n];
  if (std::isnan(seen[n]))
    return says + "; what nobody has written is nan here, and so is -infinity minus -infinity";
  if (n > 0)
    return says + fmt::format(
                      "; the columns before {} are right: have the threads that share this "
                      "row joined its maximum and its sum?",
                      n);
  if (wrong(ratio) < d) return says;
  return says + fmt::format("; all of its row is {:.4g} times what it should be", ratio);
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
    const std::int64_t head = row / run.queries, query = row % run.queries,
                       sees = shape_of(run).sees(query);
    std::vector<double> found, expected(&defined.y[row * d], &defined.y[row * d] + d);
    expected.push_back(defined.log_sums[row]);
    for (const Json& each : seen.at("rows").at(row)) found.push_back(number_of(each));
    const std::string where = fmt::format("{}, {}, {}", head / run.heads, head % run.heads, query),
                      fault = fault_of_row(run, where, found, expected);
    one_tile_is_right = one_tile_is_right || (fault.empty() && sees <= tile);
    if (fault.empty()) continue;
    if (sees <= tile || !one_tile_is_right || run.queries != run.keys)
      return text(run) + ": " + fault;
    return fmt::format(
        "{}: the queries that see at most {} keys, one tile, are right; query {} sees "
        "{}: {}: was what it had summed before the larger score came scaled down?",
        text(run), tile, query, sees, fault);
  }
  const int strays = seen.at("strays");
  return strays == 0 ? ""
                     : fmt::format("{}: {} numbers are written behind the last query of a head",
                                   text(run), strays);
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
constexpr AttentionRun in_turn(bool last_first, bool copies_at_once) {
  return {1, 1, 1, 40, 130, 8, 4, false, 3, last_first, copies_at_once};
}
constexpr AttentionRun turns[] = {in_turn(false, false), in_turn(true, false), in_turn(false, true),
                                  in_turn(true, true)};

Verdict judge_syncs(const Run& run) {
  for (std::size_t i = 0; i < std::size(turns); ++i)
    if (const auto fault = fault_of(turns[i], run.ranks[0].at(i), run.seed); !fault.empty())
      return {
          {fmt::format("3 threads, which run one at a time from sync() to sync(), thread {} first; "
                       "copies arrive {}: {}. Does a thread read what another has not written "
                       "yet, or write over what another still reads?",
                       turns[i].last_first ? 2 : 0,
                       turns[i].copies_at_once ? "at once" : "as late as they may", fault)}};
  const int seen = run.ranks[0].at(0).at("syncs");
  if (seen == 3 + 1) return {};
  return {
      {fmt::format("a block that takes 3 tiles of keys calls sync() {} times, expected 4: one for "
                   "each tile, and one at the end",
                   seen)}};
}

const Judge judge("12-flash-tile", {{"values", collect<whole>, judge_numbers<whole>},
                                    {"masked", collect<cut>, judge_numbers<cut>},
                                    {"syncs", collect<turns>, judge_syncs},
                                    {"bf16", collect<rounded>, judge_numbers<rounded>}});

}  // namespace
}  // namespace ringside::exercises

// Judges attention in tiles: against the definition in fp64, where the diagonal cuts a tile, with
// threads that take turns, and in bf16.
#include <algorithm>
#include <cmath>

#include "exercises/12-flash-tile/interface.hpp"
#include "exercises/judge/autograd/attention.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {
namespace {

constexpr std::int64_t tile = 64;  // queries, and keys

std::string text(const AttentionRun& run) {
  const std::string all = fmt::format("{} of {} numbers{}", run.shape.text(), run.shape.head_size,
                                      run.bf16 ? ", bf16" : "");
  if (run.threads == 1) return all;
  return fmt::format(
      "{} threads, which run one at a time from sync() to sync(), thread {} first; "
      "copies arrive {}; {}",
      run.threads, run.last_first ? run.threads - 1 : 0,
      run.copies_at_once ? "at once" : "as late as they may", all);
}

AttentionTensors inputs_of(const AttentionRun& run, std::uint64_t seed) {
  return random_attention(run.shape, seed, run.spread, run.bf16);
}

// One row: its numbers of y, and then the logarithm of its sum, which is fp32 in every run.
std::string fault_of_row(const AttentionRun& run, const std::string& where,
                         const std::vector<double>& seen, const std::vector<double>& expected) {
  const std::size_t d = expected.size() - 1;
  const double rounding = 1e-5 * std::max(1.0, run.spread / 4.0);  // grows with the scores
  const auto agree = [&](std::size_t n, double factor, double tolerance) {
    return std::abs(seen[n] - factor * expected[n]) <= tolerance * (1 + std::abs(expected[n]));
  };
  const auto wrong = [&](double factor) {  // the first number that is not `factor` times its own
    std::size_t n = 0;
    while (n < d && agree(n, factor, run.bf16 ? 1e-2 : rounding)) ++n;
    return n;
  };
  const std::size_t n = wrong(1);
  if (n == d && agree(d, 1, rounding)) return "";
  const std::string is = fmt::format(" is {:.6g}, expected {:.6g}", seen[n], expected[n]);
  if (n == d) return fmt::format("log_sums[{}]{}; y is right there", where, is);
  const std::string says = fmt::format("y[{}, {}]{}", where, n, is);
  const double ratio = seen[n] / expected[n];
  if (std::isnan(seen[n]))
    return says + "; unwritten memory is nan; infinity - infinity and infinity / infinity are, too";
  if (n > 0)
    return fmt::format(
        "{}; the columns before {} are right: have the threads that share this row "
        "joined its maximum and its sum?",
        says, n);
  if (wrong(ratio) < d) return says;
  return fmt::format("{}; all of its row is {:.4g} times what it should be", says, ratio);
}

// The first row that is wrong.
std::string fault_of(const AttentionRun& run, const Json& seen, std::uint64_t seed) {
  const AttentionShape& shape = run.shape;
  const DefinedAttention defined = attention_by_definition(shape, inputs_of(run, seed));
  const std::int64_t d = shape.head_size;
  bool one_tile_is_right = false;
  for (std::int64_t row = 0; row < shape.batch * shape.heads * shape.queries; ++row) {
    const std::int64_t head = row / shape.queries, query = row % shape.queries,
                       sees = shape.sees(query);
    std::vector<double> found, expected(&defined.y[row * d], &defined.y[row * d] + d);
    for (std::int64_t n = 0; n < d; ++n) found.push_back(number_of(seen.at("y").at(row * d + n)));
    found.push_back(number_of(seen.at("log_sums").at(row)));
    expected.push_back(defined.log_sums[row]);
    const std::string where =
                          fmt::format("{}, {}, {}", head / shape.heads, head % shape.heads, query),
                      fault = fault_of_row(run, where, found, expected);
    one_tile_is_right = one_tile_is_right || (fault.empty() && sees <= tile);
    if (fault.empty()) continue;
    if (sees <= tile || !one_tile_is_right || shape.queries != shape.keys)
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
    Json y = Json::array(), log_sums = Json::array();
    for (const float each : seen.y) y.push_back(json_of(each));
    for (const float each : seen.log_sums) log_sums.push_back(json_of(each));
    all.push_back(
        {{"y", y}, {"log_sums", log_sums}, {"strays", seen.strays}, {"syncs", seen.syncs}});
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
constexpr AttentionRun whole[] = {{{1, 1, 1, 5, 5, 4}},
                                  {{2, 4, 2, 65, 65, 8}},
                                  {{1, 1, 1, 130, 130, 40}},
                                  {{1, 1, 1, 70, 70, 16}, 200}};
// More keys than queries: some queries see nothing of the last tile.
constexpr AttentionRun cut[] = {
    {{1, 2, 1, 33, 70, 8}}, {{2, 1, 1, 64, 130, 8}}, {{1, 1, 1, 70, 200, 5}}};
constexpr AttentionRun rounded[] = {{{1, 2, 1, 65, 130, 16}, 0.5f, true},
                                    {{1, 1, 1, 130, 130, 8}, 4, true}};
// One block, three tiles of keys.
constexpr AttentionRun turns[] = {{{1, 1, 1, 40, 130, 8}, 4, false, 3, false, false},
                                  {{1, 1, 1, 40, 130, 8}, 4, false, 3, true, false},
                                  {{1, 1, 1, 40, 130, 8}, 4, false, 3, false, true},
                                  {{1, 1, 1, 40, 130, 8}, 4, false, 3, true, true}};

Verdict judge_syncs(const Run& run) {
  if (const Verdict wrong = judge_numbers<turns>(run); !wrong.says.empty())
    return {{wrong.says[0] + ". Does a thread read what another has not written yet, or write over "
                             "what another still reads?"}};
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

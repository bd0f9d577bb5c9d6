// Judges the way of tokens to their experts and back against one process that has all tokens and
// all experts, in fp64. Free are the order of rows within an expert, the calls, and what `Plan` and
// `Combined` keep for the student's own use.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/random.hpp"
#include "exercises/43-expert-parallel/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

using experts::Plan;
using experts::Routing;

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr double tolerance = 1e-5;  // of the largest number of a table, and of 1

// ---- The data: tokens, experts, and what one process makes of them ----

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

std::uint64_t stream(const Setting& setting, std::string_view what, int which) {
  return hash_of_text(fmt::format("{}, {} of {}", setting.name, what, which));
}

Floats normal_numbers(std::size_t count, std::uint64_t seed, std::uint64_t which) {
  Floats made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = static_cast<float>(random_normal(seed, which, i));
  return made;
}

// The indices of the `count` largest, the largest first; of equal ones the lower index first.
std::vector<int> largest(std::span<const float> numbers, int count) {
  std::vector<int> index(numbers.size());
  std::iota(index.begin(), index.end(), 0);
  std::stable_sort(index.begin(), index.end(),
                   [&](int a, int b) { return numbers[a] > numbers[b]; });
  index.resize(static_cast<std::size_t>(count));
  return index;
}

Doubles softmax(const Doubles& numbers) {
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

// ---- Beside the student's code ----

// JSON has no number for what is not finite.
Json json_of(const Floats& numbers) {
  Json json = Json::array();
  for (const float each : numbers) json.push_back(std::isfinite(each) ? Json(each) : Json(nullptr));
  return json;
}

Doubles doubles_of(const Json& json) {
  Doubles numbers;
  for (const Json& each : json)
    numbers.push_back(each.is_null() ? std::nan("") : each.get<double>());
  return numbers;
}

enum class Until { counts, dispatch, combine, backward };

// The functions up to `until`, on the tokens of a setting.
Json collect_tokens(World& world, const Setting& setting, Until until) {
  const Layer layer(setting, world.size(), world.seed());
  const Tokens& mine = layer.of_ranks[world.rank()];
  const Routing& routing = mine.routing;
  collectives::ProcessGroup& group = world.group();
  const int experts = layer.experts(), per_token = layer.per_token(), rank = world.rank();
  Json seen;
  const auto noted = [&](const char* function, auto&& call) {
    world.doing(fmt::format("{}, '{}' tokens", function, setting.name));
    const auto before = group.traffic().payload_bytes_sent;
    auto result = call();
    seen["sent"][function] = group.traffic().payload_bytes_sent - before;
    return result;
  };
  // Whatever the student returns: so many rows that all ranks go on.
  const auto whole = [&](Floats rows) {
    rows.resize(static_cast<std::size_t>(layer.rows_here(rank) * width));
    return rows;
  };

  const Plan plan = noted("plan_dispatch", [&] {
    return student_plan_dispatch(routing.chosen, experts, per_token, group);
  });
  seen["to"] = plan.to;
  seen["from"] = plan.from;
  if (until == Until::counts) return seen;

  const Floats rows =
      noted("dispatch", [&] { return student_dispatch(mine.x, plan, width, group); });
  seen["rows"] = json_of(rows);
  if (until == Until::dispatch) return seen;

  const Floats outputs = layer.computed(rank, whole(rows), false);
  const experts::Combined combined = noted(
      "combine", [&] { return student_combine(outputs, routing.weights, plan, width, group); });
  seen["y"] = json_of(combined.y);
  if (until == Until::combine) return seen;

  const experts::CombineGradients gradients = noted("combine_backward", [&] {
    return student_combine_backward(mine.dy, routing.weights, combined.kept, plan, width, group);
  });
  seen["doutputs"] = json_of(gradients.outputs);
  seen["dweights"] = json_of(gradients.weights);
  const Floats drows = layer.computed(rank, whole(gradients.outputs), true);
  seen["dx"] = json_of(noted("dispatch_backward",
                             [&] { return student_dispatch_backward(drows, plan, width, group); }));
  const Doubles exact = layer.weight_gradients(rank);
  const Floats dweights(exact.begin(), exact.end());
  seen["dlogits"] = json_of(student_route_backward(routing, dweights, experts, per_token));
  return seen;
}

template <Until until>
Json collect_layer(World& world) {
  Json seen = Json::array();
  for (const Setting& setting : settings) seen.push_back(collect_tokens(world, setting, until));
  return seen;
}

// ---- What is wrong with it ----

bool alike(double seen, double expected, double scale) {
  return std::abs(seen - expected) <= tolerance * scale;
}

double scale_of(const Doubles& numbers) {
  double most = 1;
  for (const double each : numbers) most = std::max(most, std::abs(each));
  return most;
}

// "'random' tokens, rank 1: ..." of the first fault, over all settings and ranks.
Verdict first_of(
    const Run& run,
    const std::function<std::string(const Layer& layer, int rank, const Json& seen)>& fault) {
  for (std::size_t s = 0; s < std::size(settings); ++s) {
    const Layer layer(settings[s], run.world, run.seed);
    for (int rank = 0; rank < run.world; ++rank)
      if (const std::string found = fault(layer, rank, run.ranks[rank].at(s)); !found.empty())
        return {{fmt::format("'{}' tokens, rank {}: {}", settings[s].name, rank, found)}};
  }
  return {};
}

std::string counts_fault(const Layer& layer, int rank, const Json& seen) {
  const std::vector<std::int64_t> to = seen.at("to"), from = seen.at("from");
  const auto experts = static_cast<std::size_t>(layer.experts());
  if (to.size() != experts || from.size() != experts)
    return fmt::format(
        "`to` has {} numbers and `from` {}, expected {} each, one for each expert of all ranks and "
        "for each rank's rows",
        to.size(), from.size(), experts);
  const int each = layer.first_expert(1);
  for (int i = 0; i < layer.experts(); ++i)
    if (to[i] != layer.rows(rank, i))
      return fmt::format("to[{}] is {}, but its tokens chose expert {} {} times", i, to[i], i,
                         layer.rows(rank, i));
  for (int i = 0; i < layer.experts(); ++i)
    if (const int sender = i / each, expert = layer.first_expert(rank) + i % each;
        from[i] != layer.rows(sender, expert))
      return fmt::format("from[{}] is {}, but rank {} has {} rows for expert {}", i, from[i],
                         sender, layer.rows(sender, expert), expert);
  return "";
}

// The rank and the number of the token whose x this is, to the bit; -1 if there is none.
std::pair<int, int> token_of(const Layer& layer, std::span<const double> row) {
  for (int rank = 0; rank < layer.ranks(); ++rank)
    for (int t = 0; t < layer.of_ranks[rank].count; ++t)
      if (std::ranges::equal(layer.of_ranks[rank].row(t), row)) return {rank, t};
  return {-1, -1};
}

// body(row, expert) until one has a fault.
std::string each_row(const Layer& layer, int rank,
                     const std::function<std::string(int row, int expert)>& body) {
  int row = 0;
  for (int e = layer.first_expert(rank); e < layer.first_expert(rank + 1); ++e)
    for (std::int64_t i = layer.rows_for(e); i > 0; --i, ++row)
      if (const std::string found = body(row, e); !found.empty())
        return fmt::format("row {}, of expert {}, {}", row, e, found);
  return "";
}

std::string size_fault(const char* what, std::size_t seen, std::int64_t rows) {
  if (static_cast<std::int64_t>(seen) == rows * width) return "";
  return fmt::format("{} {} numbers, expected {}: {} rows of {}", what, seen, rows * width, rows,
                     width);
}

std::span<const double> row_of(const Doubles& rows, int row) {
  return std::span(rows).subspan(static_cast<std::size_t>(row * width), width);
}

std::span<const int> choices_of(const Layer& layer, int rank, int token) {
  return std::span(layer.of_ranks[rank].routing.chosen)
      .subspan(static_cast<std::size_t>(token * layer.per_token()),
               static_cast<std::size_t>(layer.per_token()));
}

// Whether the rows stand by rank, and those of a rank by expert.
bool stand_as_they_arrived(const Layer& layer, int rank, const Doubles& rows) {
  int row = 0;
  for (int sender = 0; sender < layer.ranks(); ++sender)
    for (int e = layer.first_expert(rank); e < layer.first_expert(rank + 1); ++e)
      for (std::int64_t i = layer.rows(sender, e); i > 0; --i) {
        const auto [from, t] = token_of(layer, row_of(rows, row++));
        if (from != sender || std::ranges::count(choices_of(layer, from, t), e) == 0) return false;
      }
  return true;
}

std::string dispatch_fault(const Layer& layer, int rank, const Json& seen) {
  const Doubles rows = doubles_of(seen.at("rows"));
  if (const std::string found =
          size_fault("dispatch() returned", rows.size(), layer.rows_here(rank));
      !found.empty())
    return found;
  std::map<std::pair<int, std::pair<int, int>>, int> first;  // of an expert and a token: its row
  const std::string found = each_row(layer, rank, [&](int row, int expert) -> std::string {
    const auto token = token_of(layer, row_of(rows, row));
    const auto [sender, t] = token;
    if (sender < 0) return "is no token's x";
    if (const auto its = choices_of(layer, sender, t); std::ranges::count(its, expert) == 0)
      return fmt::format("is token {} of rank {}, which chose {}", t, sender,
                         fmt::join(its, " and "));
    if (const auto [at, is_new] = first.insert({{expert, token}, row}); !is_new)
      return fmt::format("is token {} of rank {}, as row {} is", t, sender, at->second);
    return "";
  });
  if (found.empty() || !stand_as_they_arrived(layer, rank, rows)) return found;
  return found + ": the rows stand as they arrived, by rank and then by expert";
}

std::string combine_fault(const Layer& layer, int rank, const Json& seen) {
  const Tokens& tokens = layer.of_ranks[rank];
  const Doubles y = doubles_of(seen.at("y"));
  if (const std::string found = size_fault("y has", y.size(), tokens.count); !found.empty())
    return found;
  // Of each choice, its weighted output; of each token, their sum.
  std::vector<Doubles> parts, sums, plain_sums;
  double scale = 1;
  for (int t = 0; t < tokens.count; ++t) {
    Doubles sum(width), plain(width);
    for (int c = t * layer.per_token(); c < (t + 1) * layer.per_token(); ++c) {
      parts.push_back(layer.output(rank, c));
      for (int i = 0; i < width; ++i) {
        plain[i] += parts.back()[i];
        sum[i] += parts.back()[i] *= tokens.routing.weights[c];
      }
    }
    scale = std::max(scale, scale_of(sum));
    sums.push_back(sum), plain_sums.push_back(plain);
  }
  for (int t = 0; t < tokens.count; ++t) {
    const std::span row = std::span(y).subspan(static_cast<std::size_t>(t * width), width);
    const auto is = [&](const Doubles& what) {
      return std::ranges::equal(row, what, [&](double a, double b) { return alike(a, b, scale); });
    };
    if (is(sums[t])) continue;
    std::string why;
    if (is(plain_sums[t])) why = ": that is the sum without weights";
    for (int c = t * layer.per_token(); c < (t + 1) * layer.per_token(); ++c) {
      Doubles without = sums[t];
      for (int i = 0; i < width; ++i) without[i] -= parts[c][i];
      if (is(without))
        why = fmt::format(": the output of expert {} is missing", tokens.routing.chosen[c]);
    }
    for (int other = 0; other < tokens.count; ++other)
      if (is(sums[other])) why = fmt::format(": that is y of token {}", other);
    int i = 0;
    while (alike(row[i], sums[t][i], scale)) ++i;
    return fmt::format("y of token {} has {:.6g} at [{}], expected {:.6g}{}", t, row[i], i,
                       sums[t][i], why);
  }
  return "";
}

// The first number that is wrong, and what another table, of a known mistake, has there.
struct Mistake {
  const char* is;
  Doubles numbers;
};
std::string fault_of(const char* what, const Doubles& seen, const Doubles& expected, int columns,
                     const char* row_name, const std::vector<Mistake>& mistakes) {
  if (seen.size() != expected.size())
    return fmt::format("{} has {} numbers, expected {}", what, seen.size(), expected.size());
  const double scale = scale_of(expected);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (alike(seen[i], expected[i], scale)) continue;
    std::string why;
    for (const Mistake& mistake : mistakes)
      if (std::ranges::equal(seen, mistake.numbers, [&](double a, double b) {
            return alike(a, b, scale_of(mistake.numbers));
          }))
        why = fmt::format(": {}", mistake.is);
    return fmt::format("{} of {} {} has {:.6g} at [{}], expected {:.6g}{}", what, row_name,
                       i / columns, seen[i], i % columns, expected[i], why);
  }
  return "";
}

std::string gradients_fault(const Layer& layer, int rank, const Json& seen) {
  if (const std::string found = dispatch_fault(layer, rank, seen); !found.empty()) return found;
  const Tokens& tokens = layer.of_ranks[rank];
  const int per_token = layer.per_token(), experts = layer.experts();
  const Routing& routing = tokens.routing;

  const Doubles dweights = layer.weight_gradients(rank);
  Doubles weighted = dweights;
  for (std::size_t c = 0; c < weighted.size(); ++c) weighted[c] *= routing.weights[c];
  if (const std::string found =
          fault_of("the gradient of the weights", doubles_of(seen.at("dweights")), dweights,
                   per_token, "token", {{"that is dy times the weighted output", weighted}});
      !found.empty())
    return found;

  const Doubles rows = doubles_of(seen.at("rows")), doutputs = doubles_of(seen.at("doutputs"));
  if (const std::string found =
          size_fault("the gradient of outputs has", doutputs.size(), layer.rows_here(rank));
      !found.empty())
    return found;
  const std::string of_outputs = each_row(layer, rank, [&](int row, int expert) -> std::string {
    const auto [sender, t] = token_of(layer, row_of(rows, row));
    const auto& its = layer.of_ranks[sender].routing;
    const int c =
        static_cast<int>(std::find(its.chosen.begin() + t * per_token, its.chosen.end(), expert) -
                         its.chosen.begin());
    const auto dy = layer.dy(sender, c);
    for (int i = 0; i < width; ++i)
      if (const double expected = static_cast<double>(its.weights[c]) * dy[i],
          is = row_of(doutputs, row)[i];
          !alike(is, expected, 1))
        return fmt::format(
            "is token {} of rank {}: the gradient of its output is {:.6g} at [{}], expected "
            "{:.6g}{}",
            t, sender, is, i, expected,
            alike(is, dy[i], 1) ? ": that is dy without the weight" : "");
    return "";
  });
  if (!of_outputs.empty()) return of_outputs;

  const auto numbers = static_cast<std::size_t>(tokens.count * width);
  Doubles dx(numbers), of_last(numbers);
  for (int c = 0; c < tokens.count * per_token; ++c) {
    const Doubles through = layer.applied(routing.chosen[c], layer.dy(rank, c), true);
    for (int i = 0; i < width; ++i) {
      const int at = c / per_token * width + i;
      of_last[at] = routing.weights[c] * through[i];
      dx[at] += of_last[at];
    }
  }
  if (const std::string found =
          fault_of("dx", doubles_of(seen.at("dx")), dx, width, "token",
                   {{"that is what came through the last choice alone", of_last}});
      !found.empty())
    return found;

  Doubles dlogits(static_cast<std::size_t>(tokens.count * experts)), no_mean = dlogits;
  for (int c = 0; c < tokens.count * per_token; ++c) {
    const int begin = c / per_token * per_token;
    const double mean =
        std::inner_product(dweights.begin() + begin, dweights.begin() + begin + per_token,
                           routing.weights.begin() + begin, 0.0);
    const int at = c / per_token * experts + routing.chosen[c];
    dlogits[at] = routing.weights[c] * (dweights[c] - mean),
    no_mean[at] = routing.weights[c] * dweights[c];
  }
  return fault_of(
      "the gradient of the logits", doubles_of(seen.at("dlogits")), dlogits, experts, "token",
      {{"a larger weight makes the others of its token smaller, which is missing", no_mean}});
}

// ---- Bytes ----

// At most 4 bytes for each number of the rows that leave this rank, and for two numbers more of
// each row that leaves or comes.
std::string bytes_fault(const Layer& layer, int rank, const Json& seen, bool backward) {
  const auto budget = static_cast<std::int64_t>(layer.experts()) * layer.ranks() * 8;
  if (const std::int64_t sent = seen.at("sent").at("plan_dispatch"); !backward && sent > budget)
    return fmt::format(
        "plan_dispatch() sent {} bytes, at most {} are needed: 8 for each expert and rank", sent,
        budget);
  const std::int64_t out = layer.rows_sent(rank), in = layer.rows_received(rank);
  const auto functions = backward ? std::to_array({"combine_backward", "dispatch_backward"})
                                  : std::to_array({"dispatch", "combine"});
  const std::int64_t rows[] = {out, in};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t sent = seen.at("sent").at(functions[i]),
                       most = 4 * (rows[i] * width + 2 * (out + in));
    if (sent > most)
      return fmt::format(
          "{}() sent {} bytes, at most {} are needed: {} rows of {} numbers go to other ranks, and "
          "two numbers more for each of {} rows that go or come",
          functions[i], sent, most, rows[i], width, out + in);
  }
  return "";
}

// ---- The router ----

struct Logits {
  std::string name;
  int experts, per_token;
  Floats numbers;
};

std::vector<Logits> router_cases(std::uint64_t seed) {
  std::vector<Logits> all;
  const auto add = [&](std::string name, int experts, int per_token, float factor) {
    all.push_back({std::move(name), experts, per_token,
                   normal_numbers(static_cast<std::size_t>(6 * experts), seed, 900 + all.size())});
    for (float& each : all.back().numbers) each *= factor;
  };
  add("2 of 4", 4, 2, 1);
  add("1 of 8", 8, 1, 1);
  add("3 of 3", 3, 3, 1);
  add("4 of 16", 16, 4, 1);
  add("large logits", 8, 2, 200);
  all.push_back({"equal logits", 4, 2, {1, 1, 1, 1, 0, 2, 2, 2, 3, 1, 1, 0, 0, 0, 1, 0}});
  all.push_back({"no token", 4, 2, {}});
  return all;
}

Json collect_route(World& world) {
  Json seen = Json::array();
  for (const Logits& logits : router_cases(world.seed())) {
    const Routing routing = student_route(logits.numbers, logits.experts, logits.per_token);
    seen.push_back({{"chosen", routing.chosen}, {"weights", json_of(routing.weights)}});
  }
  return seen;
}

Verdict judge_route(const Run& run) {
  const std::vector<Logits> all = router_cases(run.seed);
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Logits& logits = all[n];
    const std::vector<int> chosen = run.ranks[0].at(n).at("chosen");
    const Doubles weights = doubles_of(run.ranks[0].at(n).at("weights"));
    const auto k = static_cast<std::size_t>(logits.per_token),
               experts = static_cast<std::size_t>(logits.experts),
               tokens = logits.numbers.size() / experts;
    if (chosen.size() != tokens * k || weights.size() != tokens * k)
      return {{fmt::format("{}: {} experts and {} weights, expected {}: {} for each of {} tokens",
                           logits.name, chosen.size(), weights.size(), tokens * k, k, tokens)}};
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::span row = std::span(logits.numbers).subspan(t * experts, experts);
      const std::vector<int> expected = largest(row, logits.per_token),
                             its(chosen.begin() + static_cast<std::ptrdiff_t>(t * k),
                                 chosen.begin() + static_cast<std::ptrdiff_t>((t + 1) * k));
      const std::string where =
          fmt::format("{}: token {}, logits {:.4g}", logits.name, t, fmt::join(row, " "));
      if (its != expected)
        return {{fmt::format("{}: experts {}, expected {}", where, fmt::join(its, " "),
                             fmt::join(expected, " "))}};
      Doubles of_chosen;
      for (const int expert : expected) of_chosen.push_back(row[expert]);
      const Doubles right = softmax(of_chosen), over_all = softmax(Doubles(row.begin(), row.end()));
      for (std::size_t j = 0; j < k; ++j)
        if (const double weight = weights[t * k + j]; !alike(weight, right[j], 1))
          return {{fmt::format("{}: the weight of expert {} is {:.5g}, expected {:.5g}{}", where,
                               expected[j], weight, right[j],
                               alike(weight, over_all[expected[j]], 1)
                                   ? ": that is softmax over all experts"
                                   : "")}};
    }
  }
  return {};
}

Verdict judge_counts(const Run& run) {
  return first_of(run, counts_fault);
}
Verdict judge_dispatch(const Run& run) {
  return first_of(run, dispatch_fault);
}
Verdict judge_combine(const Run& run) {
  return first_of(run, combine_fault);
}
Verdict judge_gradients(const Run& run) {
  return first_of(run, gradients_fault);
}

template <bool backward>
Verdict judge_bytes(const Run& run) {
  return first_of(run, [](const Layer& layer, int rank, const Json& seen) {
    return bytes_fault(layer, rank, seen, backward);
  });
}

const Judge judge("43-expert-parallel",
                  {{"route", collect_route, judge_route},
                   {"counts", collect_layer<Until::counts>, judge_counts},
                   {"dispatch", collect_layer<Until::dispatch>, judge_dispatch},
                   {"combine", collect_layer<Until::combine>, judge_combine},
                   {"bytes", collect_layer<Until::combine>, judge_bytes<false>},
                   {"gradients", collect_layer<Until::backward>, judge_gradients},
                   {"gradient-bytes", collect_layer<Until::backward>, judge_bytes<true>}});

}  // namespace
}  // namespace ringside::exercises

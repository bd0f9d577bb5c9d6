// What is wrong with what a rank returned, as a sentence; empty if nothing is.
#pragma once

#include <map>

#include "exercises/43-expert-parallel/layer.hpp"

namespace ringside::exercises::expert_parallel {

constexpr double tolerance = 1e-5;  // of the largest number of a table, and of 1

// null where json_of() met a number that is not finite.
inline Doubles doubles_of(const Json& json) {
  Doubles numbers;
  for (const Json& each : json)
    numbers.push_back(each.is_null() ? std::nan("") : each.get<double>());
  return numbers;
}

inline bool alike(double seen, double expected, double scale) {
  return std::abs(seen - expected) <= tolerance * scale;
}

inline double scale_of(const Doubles& numbers) {
  double most = 1;
  for (const double each : numbers) most = std::max(most, std::abs(each));
  return most;
}

inline std::string counts_fault(const Layer& layer, int rank, const Json& seen) {
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
inline std::pair<int, int> token_of(const Layer& layer, std::span<const double> row) {
  for (int rank = 0; rank < layer.ranks(); ++rank)
    for (int t = 0; t < layer.of_ranks[rank].count; ++t)
      if (std::ranges::equal(layer.of_ranks[rank].row(t), row)) return {rank, t};
  return {-1, -1};
}

// body(row, expert) until one has a fault.
inline std::string each_row(const Layer& layer, int rank,
                            const std::function<std::string(int row, int expert)>& body) {
  int row = 0;
  for (int e = layer.first_expert(rank); e < layer.first_expert(rank + 1); ++e)
    for (std::int64_t i = layer.rows_for(e); i > 0; --i, ++row)
      if (const std::string found = body(row, e); !found.empty())
        return fmt::format("row {}, of expert {}, {}", row, e, found);
  return "";
}

inline std::string size_fault(const char* what, std::size_t seen, std::int64_t rows) {
  if (static_cast<std::int64_t>(seen) == rows * width) return "";
  return fmt::format("{} {} numbers, expected {}: {} rows of {}", what, seen, rows * width, rows,
                     width);
}

inline std::span<const double> row_of(const Doubles& rows, int row) {
  return std::span(rows).subspan(static_cast<std::size_t>(row * width), width);
}

inline std::span<const int> choices_of(const Layer& layer, int rank, int token) {
  return std::span(layer.of_ranks[rank].routing.chosen)
      .subspan(static_cast<std::size_t>(token * layer.per_token()),
               static_cast<std::size_t>(layer.per_token()));
}

// Whether the rows stand by rank, and those of a rank by expert.
inline bool stand_as_they_arrived(const Layer& layer, int rank, const Doubles& rows) {
  int row = 0;
  for (int sender = 0; sender < layer.ranks(); ++sender)
    for (int e = layer.first_expert(rank); e < layer.first_expert(rank + 1); ++e)
      for (std::int64_t i = layer.rows(sender, e); i > 0; --i) {
        const auto [from, t] = token_of(layer, row_of(rows, row++));
        if (from != sender || std::ranges::count(choices_of(layer, from, t), e) == 0) return false;
      }
  return true;
}

inline std::string dispatch_fault(const Layer& layer, int rank, const Json& seen) {
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

inline std::string combine_fault(const Layer& layer, int rank, const Json& seen) {
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
inline std::string fault_of(const char* what, const Doubles& seen, const Doubles& expected,
                            int columns, const char* row_name,
                            const std::vector<Mistake>& mistakes) {
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

inline std::string gradients_fault(const Layer& layer, int rank, const Json& seen) {
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

// At most 4 bytes for each number of the rows that leave this rank, and for two numbers more of
// each row that leaves or comes.
inline std::string bytes_fault(const Layer& layer, int rank, const Json& seen, bool backward) {
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

}  // namespace ringside::exercises::expert_parallel

// Judges the way of tokens to their experts and back against one process that has all tokens and
// all experts, in fp64. Free are the order of rows within an expert, the calls, and what `Plan` and
// `Combined` keep for the student's own use.
#include "exercises/43-expert-parallel/faults.hpp"

namespace ringside::exercises::expert_parallel {
namespace {

using experts::Plan;

// ---- Beside the student's code ----

// JSON has no number for what is not finite.
Json json_of(const Floats& numbers) {
  Json json = Json::array();
  for (const float each : numbers) json.push_back(std::isfinite(each) ? Json(each) : Json(nullptr));
  return json;
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
}  // namespace ringside::exercises::expert_parallel

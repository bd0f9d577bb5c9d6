// Experts on different ranks: tokens travel to the experts that they chose, and the outputs travel
// back. No expert has a capacity, so no token is dropped; any number of rows may be 0.
//
//     route ── plan_dispatch ── dispatch ── the experts ── combine ── y
//     route_backward ──────── dispatch_backward ── the experts ── combine_backward ── dy
//
// All ranks of the group call the same functions in the same order. Gale et al., "MegaBlocks"
// (2022): without capacity; Jiang et al., "Mixtral of experts" (2024), section 2.1: the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/process_group.hpp"
#include "exercises/43-expert-parallel/pieces.hpp"

namespace ringside::experts {

using collectives::ProcessGroup;

// logits [N, E] -> the K largest of each token, of equal ones the lower index first, and the
// softmax over these K.
inline Routing route(std::span<const float> logits, int experts, int per_token) {
  Routing routing;
  std::vector<int> best(static_cast<std::size_t>(experts));
  for (; !logits.empty(); logits = logits.subspan(best.size())) {
    std::iota(best.begin(), best.end(), 0);
    std::partial_sort(best.begin(), best.begin() + per_token, best.end(), [&](int a, int b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    });
    float total = 0;
    for (int j = 0; j < per_token; ++j) {
      routing.chosen.push_back(best[j]);
      routing.weights.push_back(std::exp(logits[best[j]] - logits[best[0]]));
      total += routing.weights.back();
    }
    for (auto w = routing.weights.end() - per_token; w != routing.weights.end(); ++w) *w /= total;
  }
  return routing;
}

// How many rows travel between this rank and the experts of all ranks, and in which order.
inline Plan plan_dispatch(const std::vector<int>& chosen, int experts, int per_token,
                          ProcessGroup& group) {
  const int ranks = group.size(), each = experts / ranks;
  Plan plan;
  plan.per_token = per_token;
  plan.to.resize(static_cast<std::size_t>(experts));
  plan.from.resize(plan.to.size());
  for (const int expert : chosen) ++plan.to[expert];
  group.all_to_all(std::span(std::as_const(plan.to)), std::span(plan.from), "rows of experts");

  plan.order.resize(chosen.size());
  std::iota(plan.order.begin(), plan.order.end(), 0);
  std::stable_sort(plan.order.begin(), plan.order.end(),
                   [&](int a, int b) { return chosen[a] < chosen[b]; });

  // The next free row of each expert here.
  std::vector<std::int64_t> next(static_cast<std::size_t>(each) + 1);
  for (int i = 0; i < experts; ++i) next[i % each + 1] += plan.from[i];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (int i = 0; i < experts; ++i)
    for (std::int64_t row = 0; row < plan.from[i]; ++row)
      plan.places.push_back(static_cast<int>(next[i % each]++));
  return plan;
}

// The rows for each expert in turn -> those from each rank. An all-to-all of unequal blocks.
inline std::vector<float> exchange(std::span<const float> rows,
                                   const std::vector<std::int64_t>& sent,
                                   const std::vector<std::int64_t>& received, int width,
                                   ProcessGroup& group, std::string_view label) {
  const auto numbers_of_ranks = [&](const std::vector<std::int64_t>& rows_of_experts) {
    const std::size_t each = rows_of_experts.size() / static_cast<std::size_t>(group.size());
    std::vector<std::size_t> numbers(static_cast<std::size_t>(group.size()));
    for (std::size_t i = 0; i < rows_of_experts.size(); ++i)
      numbers[i / each] += static_cast<std::size_t>(rows_of_experts[i] * width);
    return numbers;
  };
  const auto to = numbers_of_ranks(sent), from = numbers_of_ranks(received);
  std::vector<float> arrived(std::accumulate(from.begin(), from.end(), std::size_t{0}));
  group.all_to_all({rows, to}, {std::span(arrived), from}, label);
  return arrived;
}

// A row for each choice -> the rows for the experts of this rank, expert by expert.
inline std::vector<float> to_experts(std::span<const float> of_choices, const Plan& plan, int width,
                                     ProcessGroup& group, std::string_view label) {
  const auto arrived =
      exchange(gather_rows(of_choices, plan.order, width), plan.to, plan.from, width, group, label);
  return scatter_rows(arrived, plan.places, width);
}

// The inverse, and so its backward.
inline std::vector<float> to_tokens(std::span<const float> of_experts, const Plan& plan, int width,
                                    ProcessGroup& group, std::string_view label) {
  const auto arrived = exchange(gather_rows(of_experts, plan.places, width), plan.from, plan.to,
                                width, group, label);
  return scatter_rows(arrived, plan.order, width);
}

// x [N, width] -> the rows for the experts of this rank, expert by expert: of expert l, those of
// all ranks, the sum over r of plan.from[r E/n + l] rows.
inline std::vector<float> dispatch(std::span<const float> x, const Plan& plan, int width,
                                   ProcessGroup& group) {
  std::vector<int> token_of_choice(plan.order.size());
  for (std::size_t c = 0; c < token_of_choice.size(); ++c)
    token_of_choice[c] = static_cast<int>(c) / plan.per_token;
  return to_experts(gather_rows(x, token_of_choice, width), plan, width, group, "tokens");
}

// What the experts of this rank made of the rows of dispatch(), in the same order, and weights
// [N K] of this rank's tokens -> y [N, width]: the sum over j of weight t K + j times the output of
// the j-th expert of token t.
inline Combined combine(std::span<const float> outputs, std::span<const float> weights,
                        const Plan& plan, int width, ProcessGroup& group) {
  const auto of_choices = to_tokens(outputs, plan, width, group, "outputs");
  std::vector<float> y(of_choices.size() / static_cast<std::size_t>(plan.per_token));
  for (std::size_t c = 0; c < weights.size(); ++c)
    for (int i = 0; i < width; ++i)
      y[c / plan.per_token * width + i] += weights[c] * of_choices[c * width + i];
  return {y, of_choices};
}

// dy [N, width], and what combine() kept -> the gradients of its outputs and weights.
inline CombineGradients combine_backward(std::span<const float> dy, std::span<const float> weights,
                                         std::span<const float> kept, const Plan& plan, int width,
                                         ProcessGroup& group) {
  std::vector<float> of_choices(weights.size() * static_cast<std::size_t>(width));
  std::vector<float> dweights(weights.size());
  for (std::size_t c = 0; c < weights.size(); ++c)
    for (int i = 0; i < width; ++i) {
      const float gradient = dy[c / plan.per_token * width + i];
      of_choices[c * width + i] = weights[c] * gradient;
      dweights[c] += kept[c * width + i] * gradient;
    }
  return {to_experts(of_choices, plan, width, group, "gradient of outputs"), dweights};
}

// The gradients of the rows of dispatch() -> dx [N, width].
inline std::vector<float> dispatch_backward(std::span<const float> drows, const Plan& plan,
                                            int width, ProcessGroup& group) {
  const std::vector<float> ones(plan.order.size(), 1);
  return combine(drows, ones, plan, width, group).y;
}

// The gradient of the weights [N K] -> that of the logits [N, E]. The choice has none.
inline std::vector<float> route_backward(const Routing& routing, std::span<const float> dweights,
                                         int experts, int per_token) {
  const std::size_t tokens = dweights.size() / static_cast<std::size_t>(per_token);
  std::vector<float> dlogits(tokens * static_cast<std::size_t>(experts));
  for (std::size_t c = 0; c < dweights.size(); ++c) {
    const std::size_t t = c / per_token;
    float mean = 0;  // of the token's gradients, by weight
    for (std::size_t k = t * per_token; k < (t + 1) * per_token; ++k)
      mean += routing.weights[k] * dweights[k];
    dlogits[t * experts + routing.chosen[c]] = routing.weights[c] * (dweights[c] - mean);
  }
  return dlogits;
}

}  // namespace ringside::experts

// The ops of a mixture of experts, against their definitions and finite differences.
#include "autograd/ops/experts.hpp"

#include <cmath>
#include <numeric>

#include "autograd/kernels/copy.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;
using doctest::Contains;

namespace {

using Ids = std::vector<std::int32_t>;

Ids ids_in(const Tensor& x) {
  return {x.values<std::int32_t>().begin(), x.values<std::int32_t>().end()};
}

}  // namespace

TEST_CASE("choose_experts takes the largest logits, and of equal ones the first") {
  const Tensor logits = Tensor::from({0.5, 2.0, -1.0, 2.0, 3.0, 3.0, 3.0, 3.0}, {2, 4});
  CHECK(ids_in(choose_experts(logits, 2)) == Ids{1, 3, 0, 1});
  CHECK(ids_in(choose_experts(logits, 4)) == Ids{1, 3, 0, 2, 0, 1, 2, 3});
  CHECK_THROWS_WITH_AS(choose_experts(logits, 5),
                       Contains("expected logits [N, E] with E of at least 5, got [2, 4]"), Error);
}

TEST_CASE("rows are sorted by expert and then by token, with an expert that nobody chose") {
  const Tensor chosen = Tensor::from(Ids{3, 0, 0, 1, 3, 0}, {3, 2});
  const ExpertOrder order = sort_by_expert(chosen, 4);
  CHECK(order.counts == std::vector<std::int64_t>{3, 1, 0, 2});
  CHECK(ids_in(order.tokens) == Ids{0, 1, 2, 1, 0, 2});
  CHECK(ids_in(order.places) == Ids{4, 0, 1, 3, 5, 2});
  CHECK_THROWS_WITH_AS(sort_by_expert(chosen, 3), Contains("expert 3 is not in 0..2"), Error);
}

TEST_CASE("routing weights are the softmax of all logits, divided by the sum of the chosen ones") {
  const Tensor logits = random_tensor({5, 6}, "logits"), chosen = choose_experts(logits, 3);
  const Tensor weights = routing_weights(logits, chosen);
  for (std::int64_t t = 0; t < 5; ++t) {
    const double* const row = logits.data<double>() + t * 6;
    double all = 0, of_chosen = 0;
    for (std::int64_t i = 0; i < 6; ++i) all += std::exp(row[i]);
    const auto p = [&](std::int64_t j) {
      return std::exp(row[chosen.data<std::int32_t>()[t * 3 + j]]) / all;
    };
    for (std::int64_t j = 0; j < 3; ++j) of_chosen += p(j);
    for (std::int64_t j = 0; j < 3; ++j)
      CHECK(weights.data<double>()[t * 3 + j] == doctest::Approx(p(j) / of_chosen).epsilon(1e-14));
  }
  check_gradients(
      "routing_weights",
      [&](const std::vector<Tensor>& in) { return sum(routing_weights(in[0], chosen) * in[1]); },
      {logits, random_tensor({5, 3}, "dy")});
}

// The counts are constants: a choice has no gradient.
TEST_CASE("the balance loss adds its gradient to that of the logits, scaled by its weight") {
  const Tensor logits = random_tensor({8, 5}, "logits"), chosen = choose_experts(logits, 2);
  const Tensor counts = choices_of_sequences(chosen, 2, 5);
  CHECK(std::accumulate(counts.values<double>().begin(), counts.values<double>().end(), 0.0) == 16);
  const Tensor dy = random_tensor({8, 2}, "dy");
  const auto gradient = [&](const LoadBalance& balance) {
    const Tensor x = logits.detach().clone().set_requires_grad(true);
    backward(sum(routing_weights(x, chosen, balance) * dy));
    return to_vector(x.grad());
  };
  const auto without = gradient({}), with = gradient({0.3, counts});
  constexpr double h = 1e-6;
  for (std::int64_t i = 0; i < logits.elements(); ++i) {
    const Tensor more = logits.clone(), less = logits.clone();
    more.data<double>()[i] += h, less.data<double>()[i] -= h;
    const double slope =
        (load_balance_loss(more, counts) - load_balance_loss(less, counts)) / (2 * h);
    const auto at = static_cast<std::size_t>(i);
    CHECK(with[at] - without[at] == doctest::Approx(0.3 * slope).epsilon(1e-6));
  }
  // Equal load has the smallest value of the loss, which is K.
  const Tensor even = Tensor::zeros({4, 4}, DType::fp64);
  CHECK(load_balance_loss(even, Tensor::full({1, 4}, 2.0, DType::fp64)) == doctest::Approx(2));
  CHECK_THROWS_WITH_AS(routing_weights(logits, chosen, {0.3, {}}),
                       Contains("the balance of 5 experts needs counts [sequences, 5]"), Error);
}

TEST_CASE(
    "grouped_linear is a linear layer for each group and one without rows has gradient zero") {
  const std::vector<std::int64_t> counts{3, 0, 1, 2};
  std::vector<Tensor> in{random_tensor({6, 4}, "x")};
  for (int e = 0; e < 4; ++e) in.push_back(random_tensor({5, 4}, "w" + std::to_string(e)));
  const auto grouped = [&](const std::vector<Tensor>& of) {
    return grouped_linear(of[0], std::span(of).subspan(1), counts);
  };
  const Tensor y = grouped(in);
  std::int64_t begin = 0;
  for (std::size_t e = 0; e < 4; begin += counts[e++])
    CHECK(largest_difference(y.narrow(0, begin, counts[e]),
                             linear(in[0].narrow(0, begin, counts[e]), in[e + 1])) < 1e-14);
  const Tensor dy = random_tensor({6, 5}, "dy");
  check_gradients(
      "grouped_linear", [&](const std::vector<Tensor>& of) { return sum(grouped(of) * dy); }, in);
  for (const double each : to_vector(in[2].grad())) CHECK(each == 0);

  const std::vector<std::int64_t> none{0, 0, 0, 0};
  const Tensor empty = Tensor::zeros({0, 4}, DType::fp64).set_requires_grad(true);
  const Tensor of_none = grouped_linear(empty, std::span(in).subspan(1), none);
  CHECK(of_none.shape() == Shape{0, 5});
  CHECK_THROWS_WITH_AS(
      grouped_linear(in[0], std::span(in).subspan(1), none),
      Contains("4 matrices with as many counts whose sum is the number of rows; got [6, 4] and 4 "
               "counts"),
      Error);
}

TEST_CASE("combine_experts is the weighted sum of each token's rows") {
  const Tensor places = Tensor::from(Ids{4, 0, 1, 3, 5, 2}, {3, 2});
  const std::vector<Tensor> in{random_tensor({6, 4}, "rows"), random_tensor({3, 2}, "weights")};
  const Tensor y = combine_experts(in[0], places, in[1]);
  for (std::int64_t t = 0; t < 3; ++t)
    for (std::int64_t i = 0; i < 4; ++i) {
      double expected = 0;
      for (std::int64_t j = 0; j < 2; ++j)
        expected += in[1].data<double>()[t * 2 + j] *
                    in[0].data<double>()[places.data<std::int32_t>()[t * 2 + j] * 4 + i];
      CHECK(y.data<double>()[t * 4 + i] == doctest::Approx(expected).epsilon(1e-14));
    }
  const Tensor dy = random_tensor({3, 4}, "dy");
  check_gradients(
      "combine_experts",
      [&](const std::vector<Tensor>& of) {
        return sum(combine_experts(of[0], places, of[1]) * dy);
      },
      in);
}

TEST_CASE("the ops of experts take bf16") {
  const Tensor logits = Tensor::zeros({4, 3}, DType::bf16), chosen = choose_experts(logits, 2);
  const Tensor weights = routing_weights(logits, chosen);
  CHECK(weights.dtype() == DType::bf16);
  const Tensor rows = Tensor::full({8, 2}, 3.0, DType::bf16);
  const ExpertOrder order = sort_by_expert(chosen, 3);
  const Tensor y = combine_experts(rows, order.places, weights);
  CHECK(y.dtype() == DType::bf16);
  CHECK(sum(to_compute_dtype(y)).item() == doctest::Approx(4 * 2 * 3.0));
}

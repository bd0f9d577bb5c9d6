// Experts divided among ranks: outputs and gradients are those of one process.
#include "parallel/experts/dispatch.hpp"

#include <cmath>
#include <numeric>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/experts.hpp"
#include "autograd/ops/ops.hpp"
#include "parallel/experts/exchange_rows.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using namespace ringside::expert_parallel;

namespace {

constexpr std::int64_t width = 5, experts = 12;

Tensor drawn(Shape shape, const std::string& name) {
  const Tensor tensor = Tensor::empty(std::move(shape), DType::fp64);
  fill_normal(tensor, 0, 1, {11, name});
  return tensor;
}

std::vector<Tensor> matrices(std::int64_t first, std::int64_t count) {
  std::vector<Tensor> all;
  for (std::int64_t e = first; e < first + count; ++e)
    all.push_back(drawn({width, width}, fmt::format("w{}", e)).set_requires_grad(true));
  return all;
}

void must_be(const Tensor& seen, const Tensor& expected, std::string_view what) {
  require(seen.defined() && seen.shape() == expected.shape(), "{} has another shape", what);
  const Tensor a = seen.detach().contiguous(), b = expected.detach().contiguous();
  for (std::int64_t i = 0; i < a.elements(); ++i)
    require(std::abs(a.values<double>()[i] - b.values<double>()[i]) < 1e-12,
            "{}: element {} is {} instead of {}", what, i, a.values<double>()[i],
            b.values<double>()[i]);
}

// Rank r has 0 to 4 rows for an expert; the last rank has none at all in `lonely`.
std::vector<std::int64_t> counts_of(int rank, int ranks, bool lonely) {
  std::vector<std::int64_t> counts(experts);
  if (lonely && rank + 1 == ranks) return counts;
  for (std::int64_t e = 0; e < experts; ++e) counts[e] = (3 * rank + e * e) % 5;
  return counts;
}

std::int64_t sum_of(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

}  // namespace

TEST_CASE("the plan says who sends how many rows, and sorts what arrives by expert") {
  // Three ranks, of which the second has nothing for the two experts here.
  const Dispatch dispatch = plan_dispatch({{2, 1}, {0, 0}, {1, 2}}, {4, 3, 0});
  CHECK(dispatch.rows.sent == std::vector<std::int64_t>{4, 3, 0});
  CHECK(dispatch.rows.received == std::vector<std::int64_t>{3, 0, 3});
  CHECK(dispatch.counts == std::vector<std::int64_t>{3, 3});
  using Ids = std::vector<std::int32_t>;
  const auto ids = [](const Tensor& x) {
    return Ids(x.values<std::int32_t>().begin(), x.values<std::int32_t>().end());
  };
  // Arrived: 0 0 1 from rank 0, then 0 1 1 from rank 2.
  CHECK(ids(dispatch.sorted) == Ids{0, 1, 3, 2, 4, 5});
  CHECK(ids(dispatch.arrived) == Ids{0, 1, 3, 2, 4, 5});
  const Dispatch other = plan_dispatch({{0, 2}, {2, 0}}, {2, 2});
  CHECK(ids(other.sorted) == Ids{2, 3, 0, 1});
  CHECK(ids(other.arrived) == Ids{2, 3, 0, 1});
}

TEST_CASE("experts on 2, 3 and 4 ranks: outputs and gradients of one process, over transports") {
  for (const int ranks : {2, 3, 4})
    for (const bool lonely : {false, true})
      on_every_transport(ranks, [&](collectives::ProcessGroup& group) {
        const std::int64_t each = experts / ranks, first = group.rank() * each;
        const auto counts = counts_of(group.rank(), ranks, lonely);
        const auto name = [&](const char* what, int rank) {
          return fmt::format("{} of rank {}", what, rank);
        };
        Tensor x = drawn({sum_of(counts), width}, name("x", group.rank()));
        x.set_requires_grad(true);
        const std::vector<Tensor> here = matrices(first, each);
        const Tensor y = run_experts(
            x, counts,
            [&](const Tensor& rows, std::span<const std::int64_t> of_expert) {
              return grouped_linear(rows, here, of_expert);
            },
            group);
        backward(y, drawn(y.shape(), name("dy", group.rank())));

        // One process has the experts whole, and adds up what the tokens of all ranks say.
        const std::vector<Tensor> all = matrices(0, experts);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto of_rank = counts_of(rank, ranks, lonely);
          Tensor own = drawn({sum_of(of_rank), width}, name("x", rank));
          own.set_requires_grad(true);
          const Tensor expected = grouped_linear(own, all, of_rank);
          backward(expected, drawn(expected.shape(), name("dy", rank)));
          if (rank != group.rank()) continue;
          must_be(y, expected, "outputs");
          must_be(x.grad(), own.grad(), "gradient of the rows");
        }
        for (std::int64_t e = 0; e < each; ++e)
          must_be(here[static_cast<std::size_t>(e)].grad(),
                  all[static_cast<std::size_t>(first + e)].grad(), "gradient of an expert");
      });
}

TEST_CASE("ranks that do not divide the experts, and rows that do not fit, are refused") {
  collectives::run_threads(
      2,
      [](collectives::ProcessGroup& group) {
        const auto message = [&](const auto& body) -> std::string {
          try {
            body();
          } catch (const Error& error) {
            return error.what();
          }
          return "";
        };
        const Tensor x = Tensor::zeros({3, width}, DType::fp64);
        const std::vector<std::int64_t> three{1, 1, 1}, two{1, 1};
        const auto same = [](const Tensor& rows, std::span<const std::int64_t>) { return rows; };
        const auto of_three = message([&] { run_experts(x, three, same, group); });
        require(contains(of_three, "3 experts cannot be divided evenly among 2 ranks"), "{}",
                of_three);
        const auto of_rows = message([&] {
          parallel::exchange_rows(x, {two, two}, group, "tokens");
        });
        require(contains(of_rows, "whose sum is the number of rows, got [3, 5] and 2 counts"), "{}",
                of_rows);
      },
      {});
}

// The ops of a divided vocabulary against the same ops on the whole one, on one process.
#include "tests/autograd/divided_vocabulary.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

constexpr std::int64_t vocabulary = 257;  // divides by none of 2, 3, 4

Tensor ids_of(const std::vector<std::int32_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

// Ids at both ends of every range, and some twice.
Tensor ids_at_the_borders() {
  std::vector<std::int32_t> ids{7, 7, 0, 256};
  for (const int ranks : {2, 3, 4})
    for (int r = 1; r < ranks; ++r) {
      const auto border = static_cast<std::int32_t>(rows_of_rank(vocabulary, ranks, r).first);
      ids.push_back(border), ids.push_back(border - 1);
    }
  return ids_of(ids);
}

// The losses of all ranks have the same bits; the gradients of x add up to that of the whole, and
// those of w lie one below the other.
void must_equal_the_whole(const DividedLoss& problem, double tolerance = 1e-12) {
  const RankLoss expected = problem.whole();
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const std::vector<RankLoss> seen = problem.divided(ranks);
    CHECK(seen[0].loss.item() == doctest::Approx(expected.loss.item()).epsilon(tolerance));
    Tensor dx = Tensor::zeros(problem.x.shape(), problem.x.dtype());
    const double scale =
        largest_difference(expected.dw, Tensor::zeros(expected.dw.shape(), expected.dw.dtype()));
    for (int r = 0; r < ranks; ++r) {
      CAPTURE(r);
      const RankLoss& rank = seen[static_cast<std::size_t>(r)];
      CHECK(rank.loss.item() == seen[0].loss.item());
      dx = dx + rank.dx;
      const Rows part = rows_of_rank(problem.w.size(0), ranks, r);
      CHECK(largest_difference(rank.dw, expected.dw.narrow(0, part.first, part.count)) <=
            tolerance * std::max(1.0, scale));
    }
    CHECK(largest_difference(dx, expected.dx) <= tolerance);
  }
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the parts of a divided embedding add up to the whole one") {
  const Tensor table = random_tensor({vocabulary, 6}, "table"), ids = ids_at_the_borders(),
               dy = random_tensor({ids.elements(), 6}, "dy");
  Tensor whole = table.clone();
  whole.set_requires_grad(true);
  const Tensor expected = embedding(ids, whole);
  backward(expected, dy);
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    Tensor sum = Tensor::zeros(expected.shape(), DType::fp64);
    for (int r = 0; r < ranks; ++r) {
      const Rows part = rows_of_rank(vocabulary, ranks, r);
      Tensor weight = table.narrow(0, part.first, part.count).clone();
      weight.set_requires_grad(true);
      const Tensor y = embedding(ids, weight, {part.first, vocabulary});
      backward(y, dy);
      sum = sum + y.detach();
      CHECK(largest_difference(weight.grad(), whole.grad().narrow(0, part.first, part.count)) == 0);
    }
    CHECK(largest_difference(sum, expected.detach()) == 0);
  }
}

TEST_CASE("a rank none of whose rows is asked for has zeros and a gradient of zeros") {
  Tensor weight = random_tensor({3, 2}, "table");
  weight.set_requires_grad(true);
  const Tensor y = embedding(ids_of({0, 1, 6}), weight, {3, 7});
  backward(y, Tensor::full(y.shape(), 1, DType::fp64));
  CHECK(to_vector(y) == std::vector<double>(6, 0));
  CHECK(to_vector(weight.grad()) == std::vector<double>(6, 0));
}

TEST_CASE("a divided cross-entropy equals that of the whole vocabulary") {
  const Tensor x = random_tensor({16, 8}, "x"), w = random_tensor({vocabulary, 8}, "w");
  const Tensor targets = ids_at_the_borders();
  REQUIRE(targets.elements() == 16);
  for (const std::int64_t rows : {0, 1, 3, 16}) {
    CAPTURE(rows);
    must_equal_the_whole({.x = x, .w = w, .targets = targets, .rows_at_once = rows});
  }
  const auto with = [&](std::vector<std::int32_t> values, std::int32_t ignored) {
    values.resize(16, 5);
    must_equal_the_whole(
        {.x = x, .w = w, .targets = ids_of(values), .ignore_index = ignored, .rows_at_once = 5});
  };
  with({-100, 3, -100, 200}, -100);
  with({1, 2, 3, 4}, -100);                // only rank 0 has targets
  with({0, 0, 129, 86, 65, 256, 128}, 0);  // ignores an id
  with({0, 129, 86, 65}, 129);             // the first one of rank 1 of 2
  with({-1, 256, 129, -1, 0}, -1);
  with({257, 256, 129, 257, 0}, 257);  // one more than the last id
}

TEST_CASE("a divided cross-entropy subtracts the largest logit of the whole row") {
  // Rank 0 of 2 has logits of -1e4, rank 1 of +1e4 and less: a maximum of its own would give a rank
  // another total, and none at all would overflow.
  std::vector<double> rows;
  for (int v = 0; v < 8; ++v) rows.push_back(v < 4 ? -1 : 1 + 0.0001 * v);
  const Tensor w = Tensor::from(rows, {8, 1});
  const Tensor x = Tensor::from({1e4, -1e4, 1.0}, {3, 1});
  must_equal_the_whole({.x = x, .w = w, .targets = ids_of({7, 0, 2})}, 1e-11);
  const DividedLoss single{.x = Tensor::from({1e4f}, {1, 1}),
                           .w = Tensor::from({-1.0f, 1.0f}, {2, 1}),
                           .targets = ids_of({0})};
  CHECK(single.divided(2)[0].loss.item() == 2e4);
}

TEST_CASE("a divided cross-entropy sends three numbers a token, also where nothing is learned") {
  DividedLoss problem{.x = random_tensor({5, 4}, "x", DType::fp32),
                      .w = random_tensor({7, 4}, "w", DType::fp32),
                      .targets = ids_of({0, 6, 3, -100, 2}),
                      .rows_at_once = 3};
  const std::vector<Shape> expected{{3}, {2, 3}, {2}, {2, 2}};
  const double loss = problem.whole().loss.item();
  for (const bool learns : {true, false}) {
    problem.learns = learns;
    for (const RankLoss& rank : problem.divided(3)) {
      CHECK(rank.calls == expected);
      CHECK(rank.loss.item() == doctest::Approx(loss));
      CHECK(rank.dw.defined() == learns);
    }
  }
  problem.targets = Tensor::full({5}, -100, DType::int32);
  CHECK(problem.divided(2)[1].loss.item() == 0);
  // The blocks follow from the whole vocabulary: with blocks of its own half, a rank would make
  // fewer calls.
  problem = {.x = random_tensor({100, 1}, "x", DType::fp32),
             .w = random_tensor({100001, 1}, "w", DType::fp32),
             .targets = Tensor::full({100}, 1, DType::int32)};
  const std::size_t blocks =
      2 * static_cast<std::size_t>((100 + cross_entropy_rows(100, 100001) - 1) /
                                   cross_entropy_rows(100, 100001));
  for (const RankLoss& rank : problem.divided(2)) CHECK(rank.calls.size() == blocks);
}

TEST_CASE("a divided cross-entropy in bf16 and fp32 stays close to the whole one") {
  for (const DType type : {DType::fp32, DType::bf16}) {
    const DividedLoss problem{.x = random_tensor({16, 8}, "x", type),
                              .w = random_tensor({vocabulary, 8}, "w", type),
                              .targets = ids_at_the_borders()};
    const double expected = problem.whole().loss.item();
    for (const RankLoss& rank : problem.divided(3)) {
      CHECK(rank.loss.item() == doctest::Approx(expected).epsilon(1e-5));
      CHECK(rank.dx.dtype() == type);
    }
  }
}

TEST_CASE("ranges and ids that do not fit are refused with a sentence") {
  const Tensor weight = random_tensor({3, 2}, "w"), x = random_tensor({1, 2}, "x");
  MeetingTable table(1);
  const ThreadStatistics statistics(table, 0);
  CHECK(message_of([&] {
          embedding(ids_of({7}), weight, {3, 7});
        }) == "embedding: id 7 is not in 0..6");
  CHECK(message_of([&] {
          embedding(ids_of({0}), weight, {5, 7});
        }) ==
        "embedding: a weight [3, 2] that begins at row 5 ends at row 8, beyond a vocabulary of 7");
  CHECK(message_of([&] {
          linear_cross_entropy(x, weight, ids_of({7}), {3, 7}, statistics);
        }) == "linear_cross_entropy: target 7 is not in 0..6");
  CHECK(message_of([&] {
          linear_cross_entropy(x, weight, ids_of({0}), {5, 7}, statistics);
        }) ==
        "linear_cross_entropy: a weight [3, 2] that begins at row 5 ends at row 8, beyond a "
        "vocabulary of 7");
}

// Each op: its values against its formula, its gradients against finite differences.
#include "autograd/ops/ops.hpp"

#include <cmath>
#include <numbers>
#include <vector>

#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/tensor/storage.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

Tensor doubles(std::vector<double> values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}
Tensor ids_of(std::vector<std::int32_t> values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}

}  // namespace

TEST_CASE("add and mul broadcast as NumPy does") {
  const Tensor a = doubles({1, 2, 3, 4, 5, 6}, {2, 3}), row = doubles({10, 20, 30}, {3}),
               column = doubles({100, 200}, {2, 1});
  CHECK(to_vector(add(a, row)) == std::vector<double>{11, 22, 33, 14, 25, 36});
  CHECK(to_vector(add(column, a)) == std::vector<double>{101, 102, 103, 204, 205, 206});
  CHECK(to_vector(mul(a, column)) == std::vector<double>{100, 200, 300, 800, 1000, 1200});
  CHECK(add(column, row).shape() == Shape{2, 3});
  CHECK(to_vector(a + Tensor::scalar(1, DType::fp64)) == std::vector<double>{2, 3, 4, 5, 6, 7});
  CHECK(to_vector(a.transpose(0, 1) * column.transpose(0, 1)) ==
        std::vector<double>{100, 800, 200, 1000, 300, 1200});
  CHECK(to_vector(a * 2.0) == std::vector<double>{2, 4, 6, 8, 10, 12});
}

TEST_CASE("gradients of add, mul and scale on odd and broadcast shapes") {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{}, {}},           {{1}, {1}},       {{7}, {7}},          {{3, 5}, {5}},
      {{5}, {3, 5}},      {{3, 1}, {1, 5}}, {{2, 3, 5}, {3, 1}}, {{1, 3, 1}, {2, 1, 4}},
      {{2, 3, 4, 5}, {}}, {{2, 1}, {2, 1}}, {{3, 5}, {1, 1}},    {{2, 3, 4}, {2, 3, 4}}};
  for (const auto& [a, b] : shapes) {
    const std::string what = to_string(a) + " and " + to_string(b);
    check_gradients("add " + what, [](auto& in) { return add(in[0], in[1]); },
                    {random_tensor(a, "a"), random_tensor(b, "b")});
    check_gradients("mul " + what, [](auto& in) { return mul(in[0], in[1]); },
                    {random_tensor(a, "a"), random_tensor(b, "b")});
    check_gradients("scale " + what, [](auto& in) { return scale(in[0], -1.5); },
                    {random_tensor(a, "a")});
  }
  check_gradients("x used twice", [](auto& in) { return mul(in[0], in[0]) + in[0]; },
                  {random_tensor({3, 5}, "x")});
  check_gradients("transposed", [](auto& in) { return mul(in[0].transpose(0, 1), in[1]); },
                  {random_tensor({3, 5}, "a"), random_tensor({5, 3}, "b")});
}

TEST_CASE("gradients through views") {
  check_gradients("reshape",
                  [](auto& in) {
                    return in[0].reshape({5, -1});
                  },
                  {random_tensor({3, 5, 2}, "x")});
  check_gradients("reshape of a transposed",
                  [](auto& in) { return in[0].transpose(0, 1).reshape({15}); },
                  {random_tensor({3, 5}, "x")});
  check_gradients("transpose", [](auto& in) { return in[0].transpose(0, -1); },
                  {random_tensor({3, 1, 5}, "x")});
  check_gradients("narrow", [](auto& in) { return in[0].narrow(1, 1, 3); },
                  {random_tensor({3, 5, 2}, "x")});
  check_gradients("narrow twice",
                  [](auto& in) { return mul(in[0].narrow(0, 0, 2), in[0].narrow(0, 1, 2)); },
                  {random_tensor({3, 5}, "x")});
  check_gradients("contiguous", [](auto& in) { return in[0].transpose(0, 1).contiguous(); },
                  {random_tensor({3, 5}, "x")});
  check_gradients("clone", [](auto& in) { return in[0].clone(); }, {random_tensor({3, 5}, "x")});
}

TEST_CASE("matmul and its gradients, in batches and with a single right matrix") {
  CHECK(
      to_vector(matmul(doubles({1, 2, 3, 4, 5, 6}, {2, 3}), doubles({1, 0, 2, 1, 0, 3}, {3, 2}))) ==
      std::vector<double>{5, 11, 14, 23});
  const std::vector<std::pair<Shape, Shape>> shapes = {{{1, 1}, {1, 1}},
                                                       {{3, 5}, {5, 7}},
                                                       {{1, 5}, {5, 1}},
                                                       {{2, 3, 5}, {2, 5, 4}},
                                                       {{2, 1, 3, 5}, {2, 1, 5, 2}},
                                                       {{2, 3, 5}, {5, 4}}};
  for (const auto& [a, b] : shapes)
    check_gradients("matmul " + to_string(a) + " and " + to_string(b),
                    [](auto& in) { return matmul(in[0], in[1]); },
                    {random_tensor(a, "a"), random_tensor(b, "b")});
  check_gradients("matmul with a transposed view",
                  [](auto& in) { return matmul(in[0], in[1].transpose(0, 1)); },
                  {random_tensor({3, 5}, "a"), random_tensor({4, 5}, "b")});
}

TEST_CASE("linear multiplies by the transposed weight, its gradients with and without bias") {
  const Tensor x = doubles({1, 2, 3}, {1, 3}), w = doubles({1, 0, 0, 1, 1, 1}, {2, 3}),
               b = doubles({10, 20}, {2});
  CHECK(to_vector(linear(x, w)) == std::vector<double>{1, 6});
  CHECK(to_vector(linear(x, w, b)) == std::vector<double>{11, 26});
  for (const Shape& shape : {Shape{5}, Shape{1, 5}, Shape{3, 5}, Shape{2, 3, 5}}) {
    const std::vector<Tensor> inputs = {random_tensor(shape, "x"), random_tensor({7, 5}, "w"),
                                        random_tensor({7}, "b")};
    check_gradients(
        "linear with bias", [](auto& in) { return linear(in[0], in[1], in[2]); }, inputs);
    check_gradients("linear", [](auto& in) { return linear(in[0], in[1]); },
                    {inputs[0], inputs[1]});
  }
  check_gradients("linear to one", [](auto& in) { return linear(in[0], in[1]); },
                  {random_tensor({3, 1}, "x"), random_tensor({1, 1}, "w")});
}

TEST_CASE("relu, gelu, silu and swiglu have the values and gradients of their formulas") {
  CHECK(to_vector(relu(doubles({-1, 0, 2}, {3}))) == std::vector<double>{0, 0, 2});
  CHECK(std::isnan(relu(doubles({std::nan("")}, {1})).item()));
  for (const double x : {-3.0, -0.5, 0.25, 2.0}) {
    const double by_tanh = std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
    CHECK(gelu(doubles({x}, {1})).item() == doctest::Approx(x * (1 + by_tanh) / 2).epsilon(1e-14));
    // Half of 1 + erf(x / sqrt(2)) is the normal distribution function, which the form stands for.
    CHECK(std::abs(gelu(doubles({x}, {1})).item() - x * (1 + std::erf(x / std::sqrt(2))) / 2) <
          5e-4);
  }
  CHECK(silu(doubles({2}, {1})).item() == doctest::Approx(2 / (1 + std::exp(-2.0))).epsilon(1e-14));
  CHECK(swiglu(doubles({2}, {1}), doubles({3}, {1})).item() ==
        doctest::Approx(6 / (1 + std::exp(-2.0))).epsilon(1e-14));
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{3, 5}, Shape{2, 1, 33}}) {
    check_gradients("relu", [](auto& in) { return relu(in[0]); }, {random_tensor(shape, "x")});
    check_gradients("gelu", [](auto& in) { return gelu(in[0]); }, {random_tensor(shape, "x")});
    check_gradients("silu", [](auto& in) { return silu(in[0]); }, {random_tensor(shape, "x")});
    check_gradients("swiglu", [](auto& in) { return swiglu(in[0], in[1]); },
                    {random_tensor(shape, "g"), random_tensor(shape, "u")});
  }
  // The slope of a large input is 0 or 1, however large u is.
  const Tensor far = Tensor::from<float>({-1e14f, -50, 50, 1e14f}, {4}).set_requires_grad(true);
  const Tensor y = gelu(far);
  CHECK(to_vector(y) == std::vector<double>{0, 0, 50, 1e14f});
  backward(sum(y));
  CHECK(to_vector(far.grad()) == std::vector<double>{0, 0, 1, 1});
  check_gradients("silu of a view",
                  [](auto& in) { return silu(in[0].transpose(0, 1)).transpose(0, 1); },
                  {random_tensor({3, 5}, "x")});
}

TEST_CASE("rms_norm gives rows of mean square 1, its gradients") {
  const Tensor y = rms_norm(random_tensor({2, 8}, "x"), Tensor::full({8}, 1, DType::fp64), 0);
  for (int row = 0; row < 2; ++row) {
    double squares = 0;
    for (int i = 0; i < 8; ++i)
      squares += y.data<double>()[row * 8 + i] * y.data<double>()[row * 8 + i];
    CHECK(squares / 8 == doctest::Approx(1).epsilon(1e-12));
  }
  CHECK(rms_norm(doubles({3, 4}, {2}), doubles({1, 2}, {2}), 0.5).data<double>()[1] ==
        doctest::Approx(8 / std::sqrt(12.5 + 0.5)));
  for (const Shape& shape : {Shape{5}, Shape{1, 1}, Shape{3, 7}, Shape{2, 3, 16}})
    check_gradients("rms_norm", [](auto& in) { return rms_norm(in[0], in[1], 1e-5); },
                    {random_tensor(shape, "x"), random_tensor({shape.back()}, "w")});
}

TEST_CASE("add_rms_norm equals add and then rms_norm, its gradients through both results") {
  const std::vector<Tensor> inputs = {random_tensor({3, 7}, "x"), random_tensor({3, 7}, "r"),
                                      random_tensor({7}, "w")};
  const SumAndNorm both = add_rms_norm(inputs[0], inputs[1], inputs[2]);
  CHECK(largest_difference(both.sum, inputs[0] + inputs[1]) == 0);
  CHECK(largest_difference(both.normed, rms_norm(both.sum, inputs[2])) == 0);
  check_gradients(
      "norm alone", [](auto& in) { return add_rms_norm(in[0], in[1], in[2]).normed; }, inputs);
  check_gradients(
      "norm and sum",
      [](auto& in) {
        const SumAndNorm result = add_rms_norm(in[0], in[1], in[2]);
        return mul(result.sum, result.normed);
      },
      inputs);
}

TEST_CASE("rope rotates element i with element i + D/2 by the angle of its position") {
  const RopeTable table = rope_table(10, 4, 100, DType::fp64);
  const Tensor x = random_tensor({1, 3, 4}, "x"), y = rope(x, table, 2);
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 2; ++i) {
      const double angle = (t + 2) * std::pow(100, -2.0 * i / 4), low = x.data<double>()[t * 4 + i],
                   high = x.data<double>()[t * 4 + i + 2];
      CHECK(y.data<double>()[t * 4 + i] ==
            doctest::Approx(low * std::cos(angle) - high * std::sin(angle)));
      CHECK(y.data<double>()[t * 4 + i + 2] ==
            doctest::Approx(high * std::cos(angle) + low * std::sin(angle)));
    }
  }
  CHECK(largest_difference(rope(x.narrow(1, 0, 1), table), x.narrow(1, 0, 1)) ==
        0);  // position 0 is not rotated
}

TEST_CASE("rope keeps the memory order of its input, its gradients") {
  const RopeTable table = rope_table(9, 6, 10000, DType::fp64);
  for (const Shape& shape : {Shape{1, 6}, Shape{5, 6}, Shape{2, 3, 4, 6}})
    check_gradients("rope", [&](auto& in) { return rope(in[0], table, 1); },
                    {random_tensor(shape, "x")});
  const auto transposed = [&](const auto& in) {
    return rope(in[0].transpose(1, 2), table).transpose(1, 2);
  };
  check_gradients("rope of a transposed view", transposed, {random_tensor({2, 4, 3, 6}, "x")});
  const Tensor heads_inside = random_tensor({2, 4, 3, 6}, "x").transpose(1, 2);
  CHECK(largest_difference(rope(heads_inside, table, 1),
                           rope(heads_inside.contiguous(), table, 1)) == 0);
  CHECK(transposed(std::vector<Tensor>{random_tensor({2, 4, 3, 6}, "x")}).is_contiguous());
}

TEST_CASE("embedding selects rows and sums the gradients of equal ids") {
  const Tensor ids = ids_of({2, 0, 2, 1, 2, 2}, {2, 3});
  const Tensor weight = doubles({1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(to_vector(embedding(ids, weight)) ==
        std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4, 5, 6, 5, 6});
  CHECK(embedding(ids, weight).shape() == Shape{2, 3, 2});
  for (const std::int64_t n : {1, 2, 67})
    check_gradients("embedding", [&](auto& in) { return embedding(ids, in[0]); },
                    {random_tensor({4, n}, "w")});
}

TEST_CASE("cross_entropy has the value and gradients of its formula") {
  const Tensor logits = doubles({1, 2, 3, 0, 0, 0}, {2, 3});
  const double row0 = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0)) - 2,
               row1 = std::log(3.0);
  CHECK(cross_entropy(logits, ids_of({1, 2}, {2})).item() ==
        doctest::Approx((row0 + row1) / 2).epsilon(1e-14));
  CHECK(cross_entropy(logits, ids_of({1, -100}, {2})).item() ==
        doctest::Approx(row0).epsilon(1e-14));
  CHECK(cross_entropy(logits, ids_of({-100, -100}, {2})).item() == 0);
  CHECK(cross_entropy(doubles({1e4, 0}, {1, 2}), ids_of({1}, {1})).item() ==
        doctest::Approx(1e4));  // without overflow
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 3, 33}}) {
    const Shape tokens(shape.begin(), shape.end() - 1);
    std::vector<std::int32_t> targets;
    for (std::int64_t t = 0; t < elements_of(tokens); ++t)
      targets.push_back(static_cast<std::int32_t>((3 * t + 1) % shape.back()));
    const Tensor target = Tensor::from(targets, tokens);
    check_gradients("cross_entropy", [&](auto& in) { return cross_entropy(in[0], target); },
                    {random_tensor(shape, "z")});
  }
  const Tensor some_ignored = ids_of({4, -100, 0}, {3});
  check_gradients("cross_entropy with ignored",
                  [&](auto& in) { return cross_entropy(in[0], some_ignored); },
                  {random_tensor({3, 5}, "z")});
}

namespace {

// x [tokens, n], W [V, n] and targets, some of them ignored.
struct Prediction {
  Tensor x, w, targets;
};

Prediction prediction(std::int64_t tokens, std::int64_t n, std::int64_t vocabulary,
                      DType dtype = DType::fp64) {
  std::vector<std::int32_t> targets;
  for (std::int64_t t = 0; t < tokens; ++t)
    targets.push_back(t % 5 == 3 ? -100 : static_cast<std::int32_t>(7 * t % vocabulary));
  return {random_tensor({tokens, n}, "x", dtype), random_tensor({vocabulary, n}, "w", dtype),
          Tensor::from(targets, {tokens})};
}

// The loss, dx and dW for a gradient `seed` of the loss.
std::vector<Tensor> results_of(Prediction f, double seed,
                               const std::function<Tensor(const Prediction&)>& op) {
  f.x = f.x.clone().set_requires_grad(true), f.w = f.w.clone().set_requires_grad(true);
  const Tensor loss = op(f);
  backward(loss, Tensor::scalar(seed, loss.dtype()));
  return {loss.detach(), f.x.grad(), f.w.grad()};
}

}  // namespace

TEST_CASE("linear_cross_entropy equals cross_entropy of linear for any number of rows at once") {
  for (const std::int64_t rows : {1, 2, 5, 12, 13, 100, 0}) {
    CAPTURE(rows);
    for (const double seed : {1.0, 0.25}) {
      const auto f = prediction(13, 6, 37);
      const auto expected = results_of(
          f, seed, [](const Prediction& g) { return cross_entropy(linear(g.x, g.w), g.targets); });
      const auto fused = results_of(f, seed, [&](const Prediction& g) {
        return linear_cross_entropy(g.x, g.w, g.targets, -100, rows);
      });
      for (std::size_t i = 0; i < 3; ++i) CHECK(largest_difference(expected[i], fused[i]) < 1e-15);
    }
  }
}

TEST_CASE("gradients of linear_cross_entropy with leading dimensions and ignored rows") {
  const Tensor targets = ids_of({1, 0, -100, 6, 3, -100}, {2, 3});
  for (const std::int64_t rows : {1, 4, 6})
    check_gradients(
        "linear_cross_entropy",
        [&](auto& in) { return linear_cross_entropy(in[0], in[1], targets, -100, rows); },
        {random_tensor({2, 3, 5}, "x"), random_tensor({7, 5}, "w")});
  check_gradients(
      "linear_cross_entropy of a view",
      [&](auto& in) { return linear_cross_entropy(in[0].transpose(0, 1), in[1], targets); },
      {random_tensor({3, 2, 5}, "x"), random_tensor({7, 5}, "w")});
}

TEST_CASE("linear_cross_entropy computes only gradients that are needed") {
  auto f = prediction(9, 4, 11);
  const double expected = cross_entropy(linear(f.x, f.w), f.targets).item();
  CHECK(linear_cross_entropy(f.x, f.w, f.targets).item() ==
        doctest::Approx(expected).epsilon(1e-14));
  f.x.set_requires_grad(true);  // the weight is frozen
  backward(linear_cross_entropy(f.x, f.w, f.targets));
  CHECK(f.x.grad().defined());
  CHECK_FALSE(f.w.grad().defined());
  const NoGrad no_history;
  CHECK_FALSE(linear_cross_entropy(f.x, f.w, f.targets).requires_grad());
  const Tensor ignored = ids_of({-100, -100, -100, -100, -100, -100, -100, -100, -100}, {9});
  CHECK(linear_cross_entropy(f.x, f.w, ignored).item() == 0);
  CHECK(linear_cross_entropy(Tensor::zeros({0, 4}, DType::fp64), f.w,
                             Tensor::from(std::vector<std::int32_t>{}, {0}))
            .item() == 0);
}

TEST_CASE("linear_cross_entropy does not overflow and keeps a NaN") {
  const Tensor x = doubles({1e4, 0}, {1, 2}), w = doubles({1, 0, 0, 1}, {2, 2});
  CHECK(linear_cross_entropy(x, w, ids_of({1}, {1})).item() == doctest::Approx(1e4));
  CHECK(std::isnan(
      linear_cross_entropy(doubles({std::nan(""), 0}, {1, 2}), w, ids_of({1}, {1})).item()));
}

TEST_CASE("linear_cross_entropy never stores all logits, and threads change only rounding") {
  const std::int64_t tokens = 2048, n = 32, vocabulary = 8192;
  const auto f = prediction(tokens, n, vocabulary, DType::fp32);
  const auto op = [](const Prediction& g) { return linear_cross_entropy(g.x, g.w, g.targets); };
  reset_peak_memory();
  const auto before = memory_use().current;
  const auto one = results_of(f, 1, op);
  // About half of the logits, and small tensors.
  CHECK(memory_use().peak - before < tokens * vocabulary * 4 * 6 / 10);
  for (const int n_threads : {2, 3, 4}) {
    set_threads(n_threads);
    const auto several = results_of(f, 1, op);
    set_threads(1);
    // Slices for several threads round otherwise where OpenBLAS has other code at the end of a
    // block.
    for (std::size_t i = 0; i < 3; ++i) {
      const double largest =
          largest_difference(one[i], Tensor::zeros(one[i].shape(), one[i].dtype()));
      CHECK(largest_difference(one[i], several[i]) <= 1e-5 * largest);
    }
  }
}

TEST_CASE("rows of logits are divided into equal blocks") {
  CHECK(cross_entropy_rows(1024, 256) == 1024);  // 32 MiB hold 32768 rows
  CHECK(cross_entropy_rows(1024, 10000) == 512);
  CHECK(cross_entropy_rows(2048, 10000) == 683);
  CHECK(cross_entropy_rows(1024, 1 << 20) == 64);
  CHECK(cross_entropy_rows(1, 1 << 20) == 1);
  CHECK(cross_entropy_rows(0, 10) == 1);
  for (const Device device : {Device::cuda, Device::emulated}) {  // 512 MiB
    CHECK(cross_entropy_rows(8192, 50257, device) == 2048);
    CHECK(cross_entropy_rows(2670, 50257, device) == 2670);
    CHECK(cross_entropy_rows(1024, 1 << 24, device) == 64);
  }
}

TEST_CASE("sum, mean and mse_loss have the values and gradients of their formulas") {
  CHECK(sum(doubles({1, 2, 3.5}, {3})).item() == 6.5);
  CHECK(mean(doubles({1, 2, 3, 6}, {2, 2})).item() == 3);
  CHECK(mse_loss(doubles({1, 2}, {2}), doubles({3, 5}, {2})).item() == 6.5);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 5}, Shape{2, 3, 7}}) {
    check_gradients("sum", [](auto& in) { return sum(in[0]); }, {random_tensor(shape, "x")});
    check_gradients("mean", [](auto& in) { return mean(in[0]); }, {random_tensor(shape, "x")});
    check_gradients("mse_loss", [](auto& in) { return mse_loss(in[0], in[1]); },
                    {random_tensor(shape, "x"), random_tensor(shape, "t")});
  }
  check_gradients("sum of a view",
                  [](auto& in) { return sum(in[0].transpose(0, 1).narrow(0, 1, 2)); },
                  {random_tensor({3, 5}, "x")});
}

TEST_CASE("a wrong shape throws an error with the expected and the given shape") {
  const auto zeros = [](Shape shape) { return Tensor::zeros(std::move(shape)); };
  const auto says = [](const char* expected, auto call) {
    CAPTURE(expected);
    CHECK_THROWS_WITH_AS(call(), expected, Error);
  };
  says("add: shapes [2, 3] and [2] cannot be broadcast together", [&] {
    add(zeros({2, 3}), zeros({2}));
  });
  says("mul: expected tensors of one type, got fp32 [2] and fp64 [2]",
       [&] { mul(zeros({2}), Tensor::zeros({2}, DType::fp64)); });
  says(
      "matmul: expected [..., m, k] and [..., k, n] with equal leading sizes, or [k, n]; got [2, "
      "3] and [2, 3]",
      [&] {
        matmul(zeros({2, 3}), zeros({2, 3}));
      });
  says("linear: expected x [..., in] and weight [out, in], got [2, 3] and [3, 2]", [&] {
    linear(zeros({2, 3}), zeros({3, 2}));
  });
  says("linear: expected bias [4], got [3]", [&] {
    linear(zeros({2, 3}), zeros({4, 3}), zeros({3}));
  });
  says("swiglu: expected tensors of one shape, got [2] and [3]",
       [&] { swiglu(zeros({2}), zeros({3})); });
  says("rms_norm: expected x [..., n] and weight [n], got [2, 3] and [2]", [&] {
    rms_norm(zeros({2, 3}), zeros({2}));
  });
  says("silu: expected a tensor of fp32 or fp64, got int32",
       [&] { silu(Tensor::zeros({2}, DType::int32)); });
  says("rope_table: expected an even head size, got 3 (5 positions)", [&] { rope_table(5, 3); });
  says(
      "rope: expected x [..., T, D] with D even and tables [positions, D/2], got [2, 6] and [5, 2]",
      [&] {
        rope(zeros({2, 6}), rope_table(5, 4));
      });
  says("rope: positions 4..5 are not all in a table of 5", [&] {
    rope(zeros({2, 4}), rope_table(5, 4), 4);
  });
  says("embedding: id 3 is not in 0..2", [&] { embedding(ids_of({0, 3}, {2}), zeros({3, 2})); });
  says("embedding: id -1 is not in 0..2", [&] { embedding(ids_of({-1}, {1}), zeros({3, 2})); });
  says("embedding: expected ids of int32, got fp32 [2]", [&] {
    embedding(zeros({2}), zeros({3, 2}));
  });
  says("cross_entropy: target 5 is not in 0..4", [&] {
    cross_entropy(zeros({1, 5}), ids_of({5}, {1}));
  });
  says("cross_entropy: expected logits [..., V] and targets [...], got [2, 5] and [3]", [&] {
    cross_entropy(zeros({2, 5}), ids_of({0, 0, 0}, {3}));
  });
  says("linear_cross_entropy: target 5 is not in 0..4", [&] {
    linear_cross_entropy(zeros({1, 3}), zeros({5, 3}), ids_of({5}, {1}));
  });
  says(
      "linear_cross_entropy: expected x [..., n], weight [V, n] and targets [...], got [2, 3], [5, "
      "4] and [2]",
      [&] {
        linear_cross_entropy(zeros({2, 3}), zeros({5, 4}), ids_of({0, 0}, {2}));
      });
  says("mse_loss: expected tensors of one shape, got [2] and [2, 1]", [&] {
    mse_loss(zeros({2}), zeros({2, 1}));
  });
  says("mean: expected at least one element, got shape [0]", [&] { mean(zeros({0})); });
  says("reshape: [2, 3] with 6 elements cannot become [4, -1]", [&] {
    zeros({2, 3}).reshape({4, -1});
  });
  says("narrow: [1, 4) of dimension 1 of a tensor of shape [2, 3]", [&] {
    zeros({2, 3}).narrow(1, 1, 3);
  });
  says("transpose: dimension 2 of a tensor of shape [2, 3]", [&] {
    zeros({2, 3}).transpose(0, 2);
  });
}

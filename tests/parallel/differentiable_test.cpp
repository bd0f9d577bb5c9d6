// Collectives as differentiable functions: value, gradient, and memory that belongs to others.
#include "parallel/differentiable.hpp"

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using namespace ringside::parallel;

namespace {

Tensor drawn(Shape shape, const std::string& name) {
  const Tensor tensor = Tensor::empty(std::move(shape), DType::fp64);
  fill_normal(tensor, 0, 1, {7, name});
  return tensor;
}
Tensor drawn(Shape shape, const std::string& name, int rank) {
  return drawn(std::move(shape), fmt::format("{} of rank {}", name, rank));
}

Tensor sum_over_ranks(const Shape& shape, const std::string& name, int ranks) {
  Tensor sum = Tensor::zeros(shape, DType::fp64);
  for (int r = 0; r < ranks; ++r) sum = sum + drawn(shape, name, r);
  return sum;
}

void must_be(const Tensor& seen, const Tensor& expected, std::string_view what) {
  require(seen.shape() == expected.shape(), "{}: shape {} instead of {}", what, seen.shape(),
          expected.shape());
  const Tensor a = seen.detach().contiguous(), b = expected.detach().contiguous();
  for (std::int64_t i = 0; i < a.elements(); ++i)
    require(std::abs(a.values<double>()[i] - b.values<double>()[i]) < 1e-12,
            "{}: element {} is {} instead of {}", what, i, a.values<double>()[i],
            b.values<double>()[i]);
}

using Conjugate = Tensor (*)(const Tensor&, ProcessGroup&, std::string_view);

// y = function(x) and its gradient for dy; also that neither x nor dy is written to.
struct Seen {
  Tensor y, dx;
};
Seen run(Conjugate function, const Tensor& x_values, const Tensor& dy, ProcessGroup& group) {
  Tensor x = x_values.clone();
  x.set_requires_grad(true);
  const Tensor given = dy.clone();
  const Tensor y = function(x, group, "x");
  backward(y, given);
  must_be(x, x_values, "the input after forward and backward");
  must_be(given, dy, "the gradient of the output after backward");
  return {y.detach(), x.grad()};
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

TEST_CASE("f passes x on and sums the gradients, g sums and passes the gradient on") {
  for (const int size : {1, 2, 3, 4})
    on_every_transport(size, [size](ProcessGroup& group) {
      const Shape shape{2, 3, 5};
      const int rank = group.rank();
      const Seen f = run(copy_to_group, drawn(shape, "x"), drawn(shape, "dy", rank), group);
      must_be(f.y, drawn(shape, "x"), "f");
      must_be(f.dx, sum_over_ranks(shape, "dy", size), "the gradient of f");

      const Seen g = run(reduce_from_group, drawn(shape, "x", rank), drawn(shape, "dy"), group);
      must_be(g.y, sum_over_ranks(shape, "x", size), "g");
      must_be(g.dx, drawn(shape, "dy"), "the gradient of g");
    });
}

TEST_CASE("gather_sequence and scatter_sequence are each other's gradient, for any batch") {
  for (const int size : {1, 2, 3, 4})
    for (const std::int64_t batch : {1, 3})
      on_every_transport(size, [size, batch](ProcessGroup& group) {
        const int rank = group.rank();
        const std::int64_t own = 2, tokens = own * size, d = 5;
        const Shape part{batch, own, d}, whole{batch, tokens, d};
        const auto tokens_of = [&](const Tensor& all) {
          return all.narrow(1, rank * own, own).contiguous();
        };
        const Seen gather =
            run(gather_sequence, tokens_of(drawn(whole, "x")), drawn(whole, "dy", rank), group);
        must_be(gather.y, drawn(whole, "x"), "gather_sequence");
        must_be(gather.dx, tokens_of(sum_over_ranks(whole, "dy", size)),
                "the gradient of gather_sequence");

        const Seen scatter =
            run(scatter_sequence, drawn(whole, "x", rank), tokens_of(drawn(whole, "dy")), group);
        must_be(scatter.y, tokens_of(sum_over_ranks(whole, "x", size)), "scatter_sequence");
        must_be(scatter.dx, drawn(whole, "dy"), "the gradient of scatter_sequence");
      });
}

TEST_CASE("all_to_all sends block i to rank i, and gradients back") {
  for (const int size : {1, 2, 3, 4})
    on_every_transport(size, [size](ProcessGroup& group) {
      const int rank = group.rank();
      const Shape shape{2 * size, 3};
      const Seen seen =
          run(parallel::all_to_all, drawn(shape, "x", rank), drawn(shape, "dy", rank), group);
      for (int r = 0; r < size; ++r) {
        must_be(seen.y.narrow(0, 2 * r, 2), drawn(shape, "x", r).narrow(0, 2 * rank, 2),
                "the block of another rank");
        must_be(seen.dx.narrow(0, 2 * r, 2), drawn(shape, "dy", r).narrow(0, 2 * rank, 2),
                "the gradient of a block");
      }
    });
}

// `add` hands the same gradient to both of its inputs. If f reduced it in place, the other input
// would receive the sum as well: dx = 2 sum instead of sum + own.
TEST_CASE("a gradient that two nodes share is not overwritten") {
  for (const int size : {2, 3})
    on_every_transport(size, [size](ProcessGroup& group) {
      const Shape shape{2, 4, 3};
      const Tensor dy = drawn(shape, "dy", group.rank());
      for (const bool first : {true, false}) {
        Tensor x = drawn(shape, "x");
        x.set_requires_grad(true);
        const Tensor copied = copy_to_group(x, group, "x");
        backward(first ? copied + x : x + copied, dy);
        must_be(x.grad(), sum_over_ranks(shape, "dy", size) + dy, "the gradient of x + f(x)");
      }
      // Likewise in forward: g must leave its input to the other reader.
      Tensor x = drawn(shape, "x", group.rank());
      const Tensor sum = reduce_from_group(x, group, "x");
      must_be(sum + x, sum_over_ranks(shape, "x", size) + drawn(shape, "x", group.rank()),
              "g(x) + x");
    });
}

TEST_CASE("transposed views and passes without history go through the conjugate functions") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    const Tensor x = drawn({2, 3, 4}, "x", group.rank()).transpose(1, 2);  // [2, 4, 3]
    must_be(reduce_from_group(x, group, "x"), sum_over_ranks({2, 3, 4}, "x", 2).transpose(1, 2),
            "g of a view");
    must_be(gather_sequence(x, group, "x").narrow(1, 4, 4),
            drawn({2, 3, 4}, "x", 1).transpose(1, 2), "gather_sequence of a view");
    require(!reduce_from_group(x, group, "x").requires_grad(), "history without a reason");
    Tensor parameter = x.clone();
    parameter.set_requires_grad(true);
    const NoGrad no_history;
    require(!copy_to_group(parameter, group, "x").requires_grad(), "history under NoGrad");
  });
}

TEST_CASE("shapes that cannot be divided are refused with the name of the tensor") {
  collectives::run_threads(2, [](ProcessGroup& group) {
    const auto says = [](const std::string& expected, const std::function<void()>& body) {
      const std::string text = message_of(body);
      require(text == expected, "the text is: {}", text);
    };
    says(
        "scatter_sequence: 5 tokens of hidden cannot be divided among 2 ranks: take a sequence "
        "length that is a multiple of 2",
        [&] {
          scatter_sequence(Tensor::zeros({1, 5, 3}), group, "hidden");
        });
    says("gather_sequence: expected hidden of shape [B, T, d], got [5, 3]", [&] {
      gather_sequence(Tensor::zeros({5, 3}), group, "hidden");
    });
    says(
        "all_to_all: tokens of shape [5, 3] cannot be divided into 2 blocks of rows, one for each "
        "rank",
        [&] {
          parallel::all_to_all(Tensor::zeros({5, 3}), group, "tokens");
        });
  });
}

TEST_CASE("a rank that calls a conjugate function on another tensor is named") {
  const auto outcomes = run_tcp(2, [](ProcessGroup& group) {
    Tensor x = drawn({2, 4, 3}, "x");
    x.set_requires_grad(true);
    backward(sum(copy_to_group(x, group, group.rank() == 0 ? "mlp.input" : "attention.input")));
  });
  for (const std::string& outcome : outcomes) {
    CAPTURE(outcome);
    CHECK(contains(outcome, "gradient of mlp.input"));
    CHECK(contains(outcome, "gradient of attention.input"));
  }
}

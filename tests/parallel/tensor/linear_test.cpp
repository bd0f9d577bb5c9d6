// Divided linear layers against the same layers on one process, in fp64.
#include "parallel/differentiable.hpp"
#include "tests/parallel/tensor/divided.hpp"

using namespace ringside;
using namespace ringside::tests;
using namespace ringside::tensor_parallel;

namespace {

// A feed-forward block of two matrices, y = relu(x W1^T + b1) W2^T + b2, and its gradients for dy.
struct FeedForward {
  std::int64_t batch, tokens, in, hidden, out;
  bool has_bias = true;

  Tensor x() const { return drawn({batch, tokens, in}, "x"); }
  Tensor dy() const { return drawn({batch, tokens, out}, "dy"); }
  Tensor w1() const { return drawn({hidden, in}, "w1"); }
  Tensor w2() const { return drawn({out, hidden}, "w2"); }
  Tensor b1() const { return has_bias ? drawn({hidden}, "b1") : Tensor(); }
  Tensor b2() const { return has_bias ? drawn({out}, "b2") : Tensor(); }
};

struct Result {
  Tensor y, dx, dw1, db1, dw2, db2;
};

Tensor learned_or_none(const Tensor& values) {
  return values.defined() ? learned(values) : Tensor();
}
Tensor gradient_or_none(const Tensor& parameter) {
  return parameter.defined() ? parameter.grad() : Tensor();
}

Result whole(const FeedForward& ffn) {
  const Tensor x = learned(ffn.x()), w1 = learned(ffn.w1()), w2 = learned(ffn.w2()),
               b1 = learned_or_none(ffn.b1()), b2 = learned_or_none(ffn.b2());
  const Tensor y = linear(relu(linear(x, w1, b1)), w2, b2);
  backward(y, ffn.dy());
  return {y, x.grad(), w1.grad(), gradient_or_none(b1), w2.grad(), gradient_or_none(b2)};
}

// The parameters of one rank: slices of the same matrices.
struct Parts {
  Parts(const FeedForward& ffn, const ProcessGroup& group)
      : w1(learned(part_of(ffn.w1(), 0, group))), w2(learned(part_of(ffn.w2(), 1, group))) {
    if (!ffn.has_bias) return;
    b1 = learned(part_of(ffn.b1(), 0, group));
    b2 = learned(ffn.b2());
  }
  void must_have_the_gradients_of(const Result& expected, const ProcessGroup& group) const {
    must_be(w1.grad(), part_of(expected.dw1, 0, group), "dW1");
    must_be(w2.grad(), part_of(expected.dw2, 1, group), "dW2");
    if (!b1.defined()) return;
    must_be(b1.grad(), part_of(expected.db1, 0, group), "db1");
    must_be(b2.grad(), expected.db2, "db2");
  }
  Tensor w1, w2, b1, b2;
};

// Shapes that t divides, and hidden sizes that it does not.
std::vector<FeedForward> shapes(std::int64_t tokens) {
  return {{1, tokens, 8, 24, 8}, {3, tokens, 5, 13, 7}, {2, tokens, 6, 17, 6, false}};
}

}  // namespace

TEST_CASE("a column layer and a row layer compute what one process computes") {
  for (const int size : {1, 2, 3, 4})
    for (const FeedForward& ffn : shapes(5)) {
      const Result expected = whole(ffn);
      on_every_transport(size, [&](ProcessGroup& group) {
        const Parts own(ffn, group);
        const Tensor x = learned(ffn.x());
        const Tensor h = relu(column_linear(x, own.w1, own.b1, group, "h"));
        const Tensor y = row_linear(h, own.w2, own.b2, group, "y");
        backward(y, ffn.dy());
        must_be(y, expected.y, "y");
        must_be(x.grad(), expected.dx, "dx");
        own.must_have_the_gradients_of(expected, group);
      });
    }
}

TEST_CASE("with sequence parallel each rank has its tokens of what one process computes") {
  for (const int size : {1, 2, 3, 4})
    for (const FeedForward& ffn : shapes(12)) {
      const Result expected = whole(ffn);
      on_every_transport(size, [&](ProcessGroup& group) {
        const Parts own(ffn, group);
        const Tensor x = learned(tokens_of(ffn.x(), group));
        const Tensor h = relu(linear(parallel::gather_sequence(x, group, "h"), own.w1, own.b1));
        const Tensor y = row_linear_of_tokens(h, own.w2, own.b2, group, "y");
        backward(y, tokens_of(ffn.dy(), group));
        must_be(y, tokens_of(expected.y, group), "y");
        must_be(x.grad(), tokens_of(expected.dx, group), "dx");
        own.must_have_the_gradients_of(expected, group);
      });
    }
}

TEST_CASE("two column layers share one f: gate and up of SwiGLU") {
  const Tensor x_values = drawn({2, 3, 6}, "x"), gate = drawn({10, 6}, "gate"),
               up = drawn({10, 6}, "up"), down = drawn({6, 10}, "down"),
               dy = drawn({2, 3, 6}, "dy");
  const Tensor x_whole = learned(x_values), gate_whole = learned(gate);
  const Tensor y_whole = linear(swiglu(linear(x_whole, gate_whole), linear(x_whole, up)), down);
  backward(y_whole, dy);
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      const Tensor x = learned(x_values), own_gate = learned(part_of(gate, 0, group));
      const Tensor shared = parallel::copy_to_group(x, group, "mlp");
      const Tensor h = swiglu(linear(shared, own_gate), linear(shared, part_of(up, 0, group)));
      const Tensor y = row_linear(h, part_of(down, 1, group), {}, group, "mlp");
      const CountedCalls counted(group);
      backward(y, dy);
      require(counted.calls() == std::map<std::string, int>{{"all_reduce gradient of mlp", 1}},
              "the calls of backward are {}", counted.calls());
      must_be(y, y_whole, "y");
      must_be(x.grad(), x_whole.grad(), "dx");
      must_be(own_gate.grad(), part_of(gate_whole.grad(), 0, group), "dgate");
    });
}

TEST_CASE("the parts of a matrix are slices of it, the first ones longer") {
  const Tensor matrix = drawn({7, 5}, "matrix");
  collectives::run_threads(3, [&](ProcessGroup& group) {
    const std::int64_t first[] = {0, 3, 5}, rows[] = {3, 2, 2};
    const int rank = group.rank();
    must_be(part_of(matrix, 0, group), matrix.narrow(0, first[rank], rows[rank]), "rows", 0);
    const std::int64_t left[] = {0, 2, 4}, columns[] = {2, 2, 1};
    must_be(part_of(matrix, 1, group), matrix.narrow(1, left[rank], columns[rank]), "columns", 0);
    std::string text;
    try {
      part_of(drawn({2, 2}, "small"), 1, group);
    } catch (const Error& error) {
      text = error.what();
    }
    require(text ==
                "dimension 1 of a tensor [2, 2] cannot be divided among 3 ranks: take at most 2 "
                "ranks",
            "the text is: {}", text);
  });
}

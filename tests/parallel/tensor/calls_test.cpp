// Which calls the divided layers make, by label, and how many bytes each rank sends: against the
// formulas of docs/tensor_parallel.md. The ring is forced, so that the bytes are known.
#include "collectives/selection/algorithm_selection.hpp"
#include "parallel/differentiable.hpp"
#include "tests/parallel/tensor/divided.hpp"

using namespace ringside;
using namespace ringside::tests;

namespace {

namespace tp = ringside::tensor_parallel;

// t = 2, 3 and 4 divide everything: all ranks send the same number of bytes.
constexpr std::int64_t batch = 2, tokens = 48, width = 16, hidden = 48, vocabulary = 257;
constexpr std::uint64_t activations = batch * tokens * width * sizeof(double);  // T d e

void over_rings(int size, const Body& body) {
  GroupOptions options;
  options.algorithms =
      collectives::AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring");
  on_every_transport(size, body, options);
}

// What a rank sends when `bytes` are reduced and scattered, or gathered; an all-reduce is both.
std::uint64_t half(std::uint64_t bytes, const ProcessGroup& group) {
  const auto ranks = static_cast<std::uint64_t>(group.size());
  return bytes * (ranks - 1) / ranks;
}

Tensor ids() {
  std::vector<std::int32_t> values;
  for (int i = 0; i < batch * tokens; ++i) values.push_back(i * 37 % vocabulary);
  return Tensor::from(values, {batch, tokens});
}

}  // namespace

TEST_CASE("a feed-forward block makes one all-reduce in forward and one in backward") {
  for (const int size : {2, 3, 4})
    over_rings(size, [](ProcessGroup& group) {
      const Tensor x = learned(drawn({batch, tokens, width}, "x")),
                   w1 = learned(tp::part_of(drawn({hidden, width}, "w1"), 0, group)),
                   w2 = learned(tp::part_of(drawn({width, hidden}, "w2"), 1, group)),
                   b2 = learned(drawn({width}, "b2"));
      Tensor y;
      {
        const CountedCalls forward(group);
        y = tp::row_linear(relu(tp::column_linear(x, w1, {}, group, "h")), w2, b2, group, "y");
        forward.must_be({{"all_reduce y", 1}}, 2 * half(activations, group));
      }
      const CountedCalls in_backward(group);
      backward(sum(y));
      in_backward.must_be({{"all_reduce gradient of h", 1}}, 2 * half(activations, group));
    });
}

TEST_CASE("sequence parallel makes two halves of each all-reduce: the same bytes") {
  for (const int size : {2, 3, 4})
    over_rings(size, [](ProcessGroup& group) {
      const Tensor x = learned(tokens_of(drawn({batch, tokens, width}, "x"), group)),
                   w1 = learned(tp::part_of(drawn({hidden, width}, "w1"), 0, group)),
                   w2 = learned(tp::part_of(drawn({width, hidden}, "w2"), 1, group));
      Tensor y;
      {
        const CountedCalls forward(group);
        const Tensor h = relu(linear(parallel::gather_sequence(x, group, "h"), w1));
        y = tp::row_linear_of_tokens(h, w2, {}, group, "y");
        forward.must_be({{"all_gather h", 1}, {"reduce_scatter y", 1}},
                        2 * half(activations, group));
      }
      const CountedCalls in_backward(group);
      backward(sum(y));
      in_backward.must_be({{"all_gather gradient of y", 1}, {"reduce_scatter gradient of h", 1}},
                          2 * half(activations, group));
    });
}

TEST_CASE("a bias under sequence parallel costs one all-reduce of its gradient") {
  over_rings(2, [](ProcessGroup& group) {
    const Tensor x = drawn({batch, tokens, hidden}, "x"), b2 = learned(drawn({width}, "b2")),
                 w2 = tp::part_of(drawn({width, 2 * hidden}, "w2"), 1, group);
    const Tensor y = tp::row_linear_of_tokens(x, w2, b2, group, "y");
    const CountedCalls in_backward(group);
    backward(sum(y));
    in_backward.must_be({{"all_reduce gradient of y.bias", 1}},
                        2 * half(width * sizeof(double), group));
  });
}

TEST_CASE("the embedding makes one call, and none in backward without sequence parallel") {
  for (const int size : {2, 3, 4})
    over_rings(size, [](ProcessGroup& group) {
      const Tensor table = learned(tp::part_of(drawn({vocabulary, width}, "table"), 0, group));
      {
        const CountedCalls both(group);
        backward(sum(tp::embedding(ids(), table, vocabulary, group, "embedding")));
        both.must_be({{"all_reduce embedding", 1}}, 2 * half(activations, group));
      }
      const CountedCalls both(group);
      backward(sum(tp::embedding(ids(), table, vocabulary, group, "embedding", tp::Tokens::own)));
      both.must_be({{"all_gather gradient of embedding", 1}, {"reduce_scatter embedding", 1}},
                   2 * half(activations, group));
    });
}

TEST_CASE("the loss sends three numbers a token, never logits") {
  for (const int size : {2, 3, 4})
    over_rings(size, [](ProcessGroup& group) {
      const Tensor x = learned(drawn({batch, tokens, width}, "x")),
                   head = learned(tp::part_of(drawn({vocabulary, width}, "head"), 0, group));
      const std::uint64_t numbers = batch * tokens * sizeof(double);
      Tensor loss;
      {
        const CountedCalls forward(group);
        loss = tp::cross_entropy(x, head, ids(), vocabulary, group, "loss");
        forward.must_be({{"all_reduce max of loss", 1}, {"all_reduce sums of loss", 1}},
                        2 * half(3 * numbers, group));
      }
      {
        const CountedCalls in_backward(group);
        backward(loss);
        in_backward.must_be({{"all_reduce gradient of loss", 1}}, 2 * half(activations, group));
      }
      const Tensor own = learned(tokens_of(x, group));
      const CountedCalls of_tokens(group);
      backward(tp::cross_entropy(own, head, ids(), vocabulary, group, "loss", tp::Tokens::own));
      of_tokens.must_be({{"all_gather loss", 1},
                         {"all_reduce max of loss", 1},
                         {"all_reduce sums of loss", 1},
                         {"reduce_scatter gradient of loss", 1}},
                        2 * half(3 * numbers, group) + 2 * half(activations, group));
    });
}

#include "autograd/engine/deferred_gradients.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

// Two matrices, a bias, two norms, and one matrix that is used twice.
struct Net : Module {
  Net() {
    register_module("norm", norm);
    register_module("up", up);
    register_module("shared", shared);
    register_module("last", last);
    for (const auto& [name, tensor] : named_parameters()) fill_normal(tensor, 0, 0.3, {1, name});
  }
  Tensor block(const Tensor& x) const {
    return shared.forward(silu(shared.forward(up.forward(norm.forward(x)))));
  }
  Tensor forward(const Tensor& x, bool checkpointed = false) const {
    const Tensor y =
        checkpointed ? checkpoint([this](const Tensor& v) { return block(v); }, x) : block(x);
    return last.forward(y);
  }
  RMSNorm norm{24};
  Linear up{24, 32}, shared{32, 32, false};
  RMSNorm last{32};
};

Tensor input(int seed = 0) {
  Tensor x = Tensor::empty({16, 24});
  fill_normal(x, 0, 1, {static_cast<std::uint64_t>(seed), "x"});
  return x.set_requires_grad(true);
}

// A gradient of the output that differs in every element.
Tensor seed_for(const Tensor& y) {
  const Tensor seed = Tensor::empty(y.shape());
  fill_normal(seed, 0, 1, {2, "dy"});
  return seed;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.values<float>(), y = b.values<float>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

std::vector<Tensor> gradients_of(const Net& net) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : net.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void check_equal(const Net& a, const Net& b) {
  const auto expected = gradients_of(a), seen = gradients_of(b);
  REQUIRE(expected.size() == 5);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(expected[i], seen[i]));
}

}  // namespace

TEST_CASE("a split backward has the bits of a whole one, over several micro-batches in any order") {
  for (const bool checkpointed : {false, true}) {
    CAPTURE(checkpointed);
    const Net whole, split;
    std::vector<DeferredGradients> later(3);
    for (const int batch : {0, 1, 2}) {
      const Tensor x = input(batch), again = input(batch);
      const Tensor y = whole.forward(x);
      backward(y, seed_for(y));
      const Tensor z = split.forward(again, checkpointed);
      const DeferredGradients::Scope scope(later[batch]);
      backward(z, seed_for(z));
      CHECK(same_bits(x.grad(), again.grad()));
      CHECK_FALSE(split.up.weight.grad().defined());
      CHECK_FALSE(split.shared.weight.grad().defined());
      CHECK(split.norm.weight.grad().defined());  // small: computed at once
      CHECK_FALSE(later[batch].empty());
    }
    for (DeferredGradients& each : later) {
      each.run();
      CHECK(each.empty());
    }
    check_equal(whole, split);
  }
}

TEST_CASE("hooks run once, in run(), in the order of a whole backward") {
  const Net net;
  std::vector<std::string> order;
  for (const auto& [name, parameter] : net.named_parameters())
    parameter.register_post_accumulate_grad_hook([&order, name = name](const Tensor& of) {
      REQUIRE(of.grad().defined());
      order.push_back(name);
    });
  const auto pass = [&](DeferredGradients* later) {
    const Tensor y = net.forward(input());
    if (!later) return backward(y, seed_for(y));
    const DeferredGradients::Scope scope(*later);
    backward(y, seed_for(y));
  };
  pass(nullptr);
  const std::vector<std::string> whole = std::exchange(order, {});
  CHECK(whole.size() == 5);
  DeferredGradients later;
  pass(&later);
  CHECK(order.empty());
  later.run();
  CHECK(order == whole);
  later.run();  // nothing is left
  CHECK(order.size() == 5);
}

// As the head that is tied to the embedding, if both are in one stage.
TEST_CASE("a weight with a deferred and an ordinary use is accumulated once") {
  const auto tied = [](const Tensor& weight, const Tensor& ids) {
    return linear(embedding(ids, weight), weight);
  };
  const Tensor ids = Tensor::from<std::int32_t>({3, 1, 1, 0}, {4});
  Tensor weights[2];
  int hooks = 0;
  for (const bool deferred : {false, true}) {
    Tensor& weight = weights[deferred] = Tensor::empty({5, 8});
    fill_normal(weight, 0, 1, {3, "weight"});
    weight.set_requires_grad(true);
    weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++hooks; });
    const Tensor y = tied(weight, ids);
    DeferredGradients later;
    if (deferred) {
      const DeferredGradients::Scope scope(later);
      backward(y, seed_for(y));
      CHECK_FALSE(weight.grad().defined());
    } else {
      backward(y, seed_for(y));
    }
    later.run();
  }
  CHECK(hooks == 2);
  CHECK(same_bits(weights[0].grad(), weights[1].grad()));
}

TEST_CASE("what was saved for a deferred gradient is freed when it is computed or dropped") {
  const Net net;
  const auto activations = [] { return memory_use(MemoryKind::activations).current; };
  const auto before = activations();
  for (const bool run : {true, false}) {
    CAPTURE(run);
    DeferredGradients later;
    {
      Tensor y = net.forward(input());
      const DeferredGradients::Scope scope(later);
      const Tensor seed = seed_for(y);
      backward(y, seed);
    }
    // x of `up`; x of both uses of `shared`; dy of each.
    CHECK(activations() - before >= 4 * 16 * (24 + 32 + 32 + 3 * 32));
    if (run)
      later.run();
    else
      later = {};
    CHECK(activations() == before);
  }
  net.zero_grad();
}

TEST_CASE("scopes nest, belong to their thread, and end with an exception") {
  const Net net;
  DeferredGradients outer, inner;
  {
    const DeferredGradients::Scope first(outer);
    try {
      const DeferredGradients::Scope second(inner);
      const Tensor y = net.forward(input());
      backward(y, seed_for(y));
      fail("the end of the inner scope");
    } catch (const Error&) {
    }
    CHECK_FALSE(inner.empty());
    CHECK(outer.empty());
    const Tensor y = net.forward(input());
    backward(y, seed_for(y));
    CHECK_FALSE(outer.empty());
  }
  net.zero_grad();
  const Tensor y = net.forward(input());
  backward(y, seed_for(y));  // outside of all scopes: at once
  CHECK(net.up.weight.grad().defined());
}

TEST_CASE("a hook that throws in run() drops the rest") {
  const Net net;
  int runs = 0;
  net.shared.weight.register_post_accumulate_grad_hook([&](const Tensor&) {
    ++runs;
    fail("no more");
  });
  const Tensor y = net.forward(input());
  DeferredGradients later;
  {
    const DeferredGradients::Scope scope(later);
    backward(y, seed_for(y));
  }
  CHECK_THROWS_WITH_AS(later.run(), "no more", Error);
  CHECK(later.empty());
  CHECK(runs == 1);
  CHECK_FALSE(net.up.weight.grad().defined());
}

TEST_CASE("the gradient of a weight that was computed is not deferred: its own leaf needs it") {
  const Tensor base = input();
  const Tensor x = input(1);
  DeferredGradients later;
  const DeferredGradients::Scope scope(later);
  const Tensor y = linear(x, base * 2.0);
  backward(y, seed_for(y));
  CHECK(later.empty());
  CHECK(base.grad().defined());
}

// One test for each known pitfall of an autograd engine.
#include "autograd/engine/engine.hpp"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "autograd/engine/node.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

Tensor parameter(std::vector<double> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {size}).set_requires_grad(true);
}

// The op y = x, whose backward appends `name` to `order`.
Tensor watched(const char* name, const Tensor& x, std::vector<std::string>& order) {
  return record(name, x.detach(), {x}, [name, &order](const Node&, const Tensor& dy) -> Gradients {
    order.push_back(name);
    return {dy};
  });
}

}  // namespace

TEST_CASE("the gradient of a tensor that is used several times is the sum over its uses") {
  const Tensor x = parameter({2});
  backward(sum(x * x + x * 3.0 + x));
  CHECK(x.grad().item() == 2 * 2 + 3 + 1);
}

TEST_CASE("gradients accumulate over passes until they are dropped") {
  const Tensor x = parameter({1, 2});
  backward(sum(x));
  backward(sum(x * 2.0));
  CHECK(to_vector(x.grad()) == std::vector<double>{3, 3});
  x.zero_grad();
  CHECK(!x.grad().defined());
  backward(sum(x));
  CHECK(to_vector(x.grad()) == std::vector<double>{1, 1});
}

TEST_CASE("a copy of a tensor is the same variable, and a detached tensor is another one") {
  Tensor x = Tensor::full({1}, 2, DType::fp64);
  const Tensor copy = x, detached = x.detach();
  x.set_requires_grad(true);
  CHECK(copy.requires_grad());
  CHECK(copy.is_same(x));
  CHECK(!detached.requires_grad());
  backward(sum(x * detached));
  CHECK(copy.grad().item() == 2);
}

TEST_CASE("a gradient buffer that two nodes share is never written to") {
  // add returns one buffer as the gradient of both a and b. `tenfold`, recorded earlier and so run
  // later, delivers a second gradient to a while b still waits. Adding it in place would change the
  // buffer that b reads next.
  const Tensor x = parameter({1, 1}), y = parameter({1, 1});
  const Tensor b = y * 1.0, a = x * 1.0, tenfold = a * 10.0;
  const Tensor s = a + b;
  backward(sum(s + tenfold));
  CHECK(to_vector(x.grad()) == std::vector<double>{11, 11});
  CHECK(to_vector(y.grad()) == std::vector<double>{1, 1});
}

TEST_CASE("two leaves never share one gradient buffer") {
  const Tensor x = parameter({1, 1}), y = parameter({1, 1});
  const Tensor seed = Tensor::full({2}, 1, DType::fp64);
  backward(x + y, seed);
  CHECK(x.grad().storage() != y.grad().storage());
  x.grad().fill_(7);
  CHECK(to_vector(y.grad()) == std::vector<double>{1, 1});
  CHECK(to_vector(seed) == std::vector<double>{1, 1});  // the caller keeps its seed
  backward(x + y, seed);
  CHECK(to_vector(seed) == std::vector<double>{1, 1});
}

TEST_CASE("a view of a shared gradient buffer is never written to") {
  // As above, but the first gradient of a is a view of the shared buffer: only a holds this tensor,
  // but b still needs its memory.
  const Tensor x = parameter({1, 1}), y = parameter({1, 1});
  const Tensor b = y.reshape({2, 1}) * 1.0, a = x * 1.0, tenfold = a * 10.0;
  const Tensor s = a.reshape({2, 1}) + b;
  backward(sum(s + tenfold.reshape({2, 1})));
  CHECK(to_vector(x.grad()) == std::vector<double>{11, 11});
  CHECK(to_vector(y.grad()) == std::vector<double>{1, 1});
}

TEST_CASE("a gradient that is a view of a bucket is written in place") {
  const Tensor bucket = Tensor::zeros({5}, DType::fp64);
  const Tensor x = parameter({1, 2}), y = parameter({3, 4, 5});
  x.set_grad(bucket.narrow(0, 0, 2));
  y.set_grad(Tensor::view_of(bucket.storage(), 2, {3}, DType::fp64));
  backward(sum(x * 2.0) + sum(y * 3.0));
  CHECK(to_vector(bucket) == std::vector<double>{2, 2, 3, 3, 3});
  backward(sum(x) + sum(y));
  CHECK(to_vector(bucket) == std::vector<double>{3, 3, 4, 4, 4});
  x.zero_grad(false);
  CHECK(to_vector(bucket) == std::vector<double>{0, 0, 4, 4, 4});
  backward(sum(x));
  CHECK(to_vector(bucket) == std::vector<double>{1, 1, 4, 4, 4});
}

TEST_CASE("the hook of a tied weight runs once per pass, after the last use") {
  const Tensor w = parameter({1, 2});
  std::vector<double> seen;
  w.register_post_accumulate_grad_hook(
      [&](const Tensor& p) { seen.push_back(p.grad().data<double>()[0]); });
  const Tensor early = mul(w, w);     // two uses at the beginning of the model
  const Tensor late = mul(early, w);  // and one at its end: w^3
  backward(sum(late));
  CHECK(seen == std::vector<double>{3});  // one call, with the complete gradient 3 w^2
  backward(sum(w));
  CHECK(seen == std::vector<double>{3, 4});
}

TEST_CASE("hooks run in the order in which gradients become ready") {
  const Tensor first = parameter({1}), second = parameter({1}), third = parameter({1});
  std::vector<std::string> order;
  const auto watch = [&](const Tensor& p, const char* name) {
    p.register_post_accumulate_grad_hook([&order, name](const Tensor&) { order.push_back(name); });
  };
  watch(first, "first"), watch(second, "second"), watch(third, "third");
  const Tensor one = mul(first, first);
  const Tensor two = mul(second, one);   // here the parameter is the left argument,
  const Tensor three = mul(two, third);  // and here the right one
  backward(sum(three));
  CHECK(order == std::vector<std::string>{"third", "second", "first"});
}

TEST_CASE("the hook of a parameter runs before the backward of earlier ops") {
  const Tensor x = parameter({1}), w = parameter({1});
  std::vector<std::string> order;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { order.push_back("hook of w"); });
  const Tensor a = watched("old", x, order);
  backward(sum(watched("new", mul(a, w), order)));
  CHECK(order == std::vector<std::string>{"new", "hook of w", "old"});
}

TEST_CASE("a node waits for all its consumers, and the ready node recorded last runs first") {
  const Tensor x = parameter({1});
  std::vector<std::string> order;
  const Tensor root = watched("root", x, order);
  const Tensor left = watched("left", root, order), right = watched("right", root, order);
  const Tensor left_end = watched("left end", left, order);
  backward(sum(left_end + right));
  CHECK(order == std::vector<std::string>{"left end", "right", "left", "root"});
}

TEST_CASE("a hook on a result gets its complete gradient before the backward of the op") {
  const Tensor x = parameter({2});
  std::vector<std::string> order;
  const Tensor y = watched("op", x, order);
  double seen = 0;
  y.register_hook([&](const Tensor& dy) { seen = dy.item(), order.push_back("hook"); });
  backward(sum(y * 3.0 + y * 4.0));
  CHECK(seen == 7);
  CHECK(order == std::vector<std::string>{"hook", "op"});
}

TEST_CASE("a removed hook no longer runs, and a hook may remove itself") {
  const Tensor x = parameter({1});
  int kept = 0, removed = 0, once = 0, id = 0;
  const int gone = x.register_post_accumulate_grad_hook([&](const Tensor&) { ++removed; });
  id = x.register_post_accumulate_grad_hook([&](const Tensor& p) { ++once, p.remove_hook(id); });
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++kept; });
  x.remove_hook(gone);
  x.remove_hook(12345);
  backward(sum(x));
  backward(sum(x));
  CHECK(removed == 0);
  CHECK(once == 1);
  CHECK(kept == 2);
}

TEST_CASE("frozen and unused parameters get no gradient and no hook call") {
  const Tensor used = parameter({1}), unused = parameter({1});
  Tensor frozen = parameter({5});
  frozen.set_requires_grad(false);
  int fired = 0;
  unused.register_post_accumulate_grad_hook([&](const Tensor&) { ++fired; });
  const Tensor not_part_of_the_loss = unused * 2.0;
  backward(sum(used * frozen));
  CHECK(used.grad().item() == 5);
  CHECK(!frozen.grad().defined());
  CHECK(!unused.grad().defined());
  CHECK(fired == 0);
  CHECK_THROWS_WITH_AS(
      frozen.register_post_accumulate_grad_hook([](const Tensor&) {}),
      "register_post_accumulate_grad_hook: expected a leaf that requires a gradient", Error);
}

TEST_CASE("a very deep graph is run and destroyed without recursion") {
  const int depth = 200000;
  const auto deep = [&](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < depth; ++i) y = y + x;
    return y;
  };
  const Tensor x = parameter({1});
  {
    const Tensor never_walked = deep(x);
    CHECK(never_walked.item() == depth + 1);
  }  // the whole graph is destroyed here
  backward(sum(deep(x)));
  CHECK(x.grad().item() == depth + 1);
  const auto deep_saved = [&] {  // mul saves its inputs, which lead from node to node as well
    Tensor y = x;
    for (int i = 0; i < depth; ++i) y = mul(y, x);
    return y;
  };
  { const Tensor never_walked = deep_saved(); }
  x.zero_grad();
  backward(sum(deep_saved()));
  CHECK(x.grad().item() == depth + 1);
}

TEST_CASE("no cycle of references: graph and parameters are freed with their last handle") {
  std::weak_ptr<Storage> parameter_memory, saved_memory;
  std::weak_ptr<Node> node;
  {
    const Tensor x = parameter({1, 2});
    parameter_memory = x.storage();
    x.register_post_accumulate_grad_hook([](const Tensor&) {});
    const Tensor squared = mul(x, x);
    saved_memory = squared.storage();
    const Tensor loss = sum(silu(mul(squared, squared)));
    node = squared.grad_fn();
    CHECK(!node.expired());
    SUBCASE("dropped without a pass") {}
    SUBCASE("dropped after a pass") {
      backward(loss);
    }
  }
  CHECK(parameter_memory.expired());
  CHECK(saved_memory.expired());
  CHECK(node.expired());
}

TEST_CASE("a node frees its saved tensors as soon as it has run") {
  const Tensor x = parameter({1, 2});
  Tensor squared = mul(x, x);
  const std::weak_ptr<Storage> saved = squared.storage();
  bool alive_in_hook = true;
  const Tensor early = mul(x * 1.0, x.detach());
  const Tensor loss = sum(mul(squared, squared) + early);
  squared = {};
  CHECK(!saved.expired());
  x.register_post_accumulate_grad_hook([&](const Tensor&) { alive_in_hook = !saved.expired(); });
  backward(loss);
  CHECK(!alive_in_hook);  // although `loss` is still alive
}

TEST_CASE("a second pass through a graph throws and changes nothing") {
  const Tensor x = parameter({2});
  const Tensor shared = mul(x, x), loss1 = sum(shared), loss2 = sum(shared * 3.0);
  backward(loss1);
  CHECK(x.grad().item() == 4);
  const char* message =
      "backward: an earlier backward has run sum and released what it saved; compute the loss "
      "again, or add the losses and call backward once";
  CHECK_THROWS_WITH_AS(backward(loss1), message, Error);
  CHECK_THROWS_AS(backward(loss2), Error);  // part of its graph is released
  CHECK(x.grad().item() == 4);
}

TEST_CASE("no history is recorded under NoGrad or within backward") {
  const Tensor x = parameter({2});
  {
    const NoGrad no_history;
    CHECK(!grad_enabled());
    const Tensor y = mul(x, x);
    CHECK(!y.requires_grad());
    CHECK(y.is_leaf());
    { const NoGrad nested; }
    CHECK(!grad_enabled());
  }
  CHECK(grad_enabled());
  bool enabled_in_hook = true;
  x.register_post_accumulate_grad_hook([&](const Tensor&) { enabled_in_hook = grad_enabled(); });
  backward(sum(x));
  CHECK(!enabled_in_hook);
  CHECK(!mul(Tensor::zeros({2}), Tensor::zeros({2})).requires_grad());
}

TEST_CASE("a hook that throws ends the pass and the next pass works") {
  const Tensor x = parameter({2});
  const int id =
      x.register_post_accumulate_grad_hook([](const Tensor&) { fail("the hook failed"); });
  CHECK_THROWS_WITH_AS(backward(sum(mul(x, x))), "the hook failed", Error);
  CHECK(grad_enabled());
  x.remove_hook(id);
  x.zero_grad();
  backward(sum(mul(x, x)));
  CHECK(x.grad().item() == 4);
}

TEST_CASE("backward names the loss or seed that does not fit") {
  const Tensor x = parameter({1, 2});
  CHECK_THROWS_WITH_AS(
      backward(Tensor::zeros({2})),
      "backward: the loss of shape [2] depends on no tensor that requires a gradient", Error);
  CHECK_THROWS_WITH_AS(backward(x * 2.0),
                       "backward: expected a loss of one element, got shape [2]; give a seed of "
                       "that shape, or sum() the loss",
                       Error);
  CHECK_THROWS_WITH_AS(backward(x * 2.0, Tensor::zeros({2})),
                       "backward: expected a seed of fp64 [2], got fp32 [2]", Error);
  CHECK_THROWS_AS(backward(Tensor()), Error);
}

TEST_CASE("a hook on a result may register another hook there") {
  const Tensor x = parameter({2});
  const Tensor y = mul(x, x);
  int first = 0, second = 0;
  y.register_hook([&](const Tensor&) {
    ++first;
    for (int i = 0; i < 8; ++i) y.register_hook([&](const Tensor&) { ++second; });
  });
  backward(sum(y));
  CHECK(first == 1);
  CHECK(second == 0);
}

TEST_CASE("an op whose backward returns a wrong shape or number of gradients is named") {
  const Tensor x = parameter({1, 2});
  const auto returns = [&](Gradients gradients) {
    return record("student's op", x.detach(), {x},
                  [gradients](const Node&, const Tensor&) -> Gradients { return gradients; });
  };
  CHECK_THROWS_WITH_AS(
      backward(sum(returns({Tensor::zeros({3}, DType::fp64)}))),
      "backward of student's op: expected a gradient of fp64 [2] for input 0, got fp64 [3]", Error);
  CHECK_THROWS_WITH_AS(backward(sum(returns({Tensor(), Tensor()}))),
                       "backward of student's op: expected 1 gradients, one per input, got 2",
                       Error);
}

TEST_CASE("a leaf can be its own loss") {
  const Tensor x = parameter({3});
  backward(x);
  CHECK(x.grad().item() == 1);
}

TEST_CASE("threads run different graphs at the same time") {
  std::vector<double> results(4);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < 50; ++i) {
        const Tensor w = random_tensor({8, 8}, "w").set_requires_grad(true),
                     x = random_tensor({4, 8}, fmt::format("x{}", i));
        backward(sum(mul(linear(x, w), linear(x, w))));
        for (const double g : w.grad().values<double>()) results[rank] += g;
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (const double result : results) CHECK(result == results[0]);
}

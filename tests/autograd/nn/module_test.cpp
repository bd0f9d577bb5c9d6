#include "autograd/nn/module.hpp"

#include <memory>
#include <string>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

struct Block : Module {
  Linear up{2, 3}, down{3, 2, false};
  Tensor table = Tensor::zeros({4});
  Block() {
    register_module("up", up);
    register_module("down", down);
    register_buffer("table", table);
  }
};

struct Model : Module {
  Embedding embed{5, 2};
  std::vector<std::unique_ptr<Block>> layers;
  Linear head{2, 5, false};
  Model() {
    register_module("embed", embed);
    for (int i = 0; i < 2; ++i)
      register_module(fmt::format("layers_{}", i), *layers.emplace_back(std::make_unique<Block>()));
    register_module("head", head);
  }
};

struct Anything : Module {
  Tensor a = Tensor::zeros({1}), b = Tensor::zeros({1});
  void add(const std::string& name, Tensor& tensor) { register_parameter(name, tensor); }
};

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> result;
  for (const NamedTensor& entry : tensors) result.push_back(entry.name);
  return result;
}

}  // namespace

TEST_CASE("parameters are listed in the order of registration, with dotted names") {
  const Model model;
  CHECK(names(model.named_parameters()) ==
        std::vector<std::string>{"embed.weight", "layers_0.up.weight", "layers_0.up.bias",
                                 "layers_0.down.weight", "layers_1.up.weight", "layers_1.up.bias",
                                 "layers_1.down.weight", "head.weight"});
  CHECK(names(model.named_buffers()) ==
        std::vector<std::string>{"layers_0.table", "layers_1.table"});
  CHECK(model.parameters().size() == 8);
  for (const Tensor& p : model.parameters()) CHECK(p.requires_grad());
}

TEST_CASE("a tied parameter is listed once under its first name") {
  Model model;
  model.head.weight = model.embed.weight;
  CHECK(names(model.named_parameters()).back() == "layers_1.down.weight");
  CHECK(names(model.named_parameters(true)).back() == "head.weight");
  CHECK(model.parameters().size() == 7);
}

TEST_CASE("a frozen module is listed and gets no gradient") {
  Block block;
  block.up.set_requires_grad(false);
  CHECK(block.named_parameters().size() == 3);
  backward(sum(block.down.forward(relu(block.up.forward(Tensor::full({1, 2}, 1))))));
  CHECK(!block.up.weight.grad().defined());
  CHECK(block.down.weight.grad().defined());
  block.zero_grad(false);
  CHECK(block.down.weight.grad().defined());
  block.zero_grad();
  CHECK(!block.down.weight.grad().defined());
}

TEST_CASE("an empty name, a name with a dot and a taken name throw") {
  Anything module;
  module.add("a", module.a);
  CHECK_THROWS_WITH_AS(module.add("a", module.b), "Module: the name 'a' is registered already",
                       Error);
  CHECK_THROWS_WITH_AS(module.add("a.b", module.b),
                       "Module: 'a.b' is no name: it must not be empty and must not contain a dot",
                       Error);
  CHECK_THROWS_AS(module.add("", module.b), Error);
}

TEST_CASE("initial values depend on seed, name and index only") {
  const Linear a(4, 3, true, {1, "a"}), again(4, 3, true, {1, "a"}),
      other_name(4, 3, true, {1, "b"}), other_seed(4, 3, true, {2, "a"});
  CHECK(largest_difference(a.weight, again.weight) == 0);
  CHECK(largest_difference(a.bias, again.bias) == 0);
  CHECK(largest_difference(a.weight, other_name.weight) > 0);
  CHECK(largest_difference(a.weight, other_seed.weight) > 0);
  for (const double w : to_vector(a.weight)) CHECK(std::abs(w) <= 0.5);

  const Linear wide(4, 3, true, {1, "a"}, DType::fp64);
  for (std::size_t i = 0; i < 12; ++i)
    CHECK(to_vector(wide.weight)[i] == doctest::Approx(to_vector(a.weight)[i]).epsilon(1e-6));

  const Tensor whole = Tensor::empty({10}), slice = Tensor::empty({4});
  fill_normal(whole, 0, 1, {7, "w"});
  fill_normal(slice, 0, 1, {7, "w"}, 6);  // as on a rank that holds the end of a weight
  CHECK(largest_difference(whole.narrow(0, 6, 4), slice) == 0);
}

TEST_CASE("a layer computes the same as its op") {
  const Tensor x = random_tensor({3, 4}, "x", DType::fp32);
  const Linear layer(4, 2);
  CHECK(largest_difference(layer.forward(x), linear(x, layer.weight, layer.bias)) == 0);
  const RMSNorm norm(4, 1e-6);
  CHECK(largest_difference(norm.forward(x), rms_norm(x, Tensor::full({4}, 1), 1e-6)) == 0);
  const Embedding table(5, 2);
  const Tensor ids = Tensor::from<std::int32_t>({4, 0}, {2});
  CHECK(largest_difference(table.forward(ids), embedding(ids, table.weight)) == 0);
}

TEST_CASE("named_modules lists parents before their children") {
  Model model;
  std::vector<std::string> seen;
  for (const auto& [name, module] : model.named_modules()) seen.push_back(name);
  CHECK(seen == std::vector<std::string>{"", "embed", "layers_0", "layers_0.up", "layers_0.down",
                                         "layers_1", "layers_1.up", "layers_1.down", "head"});
  CHECK(model.named_modules()[3].module == &model.layers[0]->up);
  CHECK(model.named_parameters(false, false).empty());
  CHECK(names(model.layers[0]->up.named_parameters(false, false)) ==
        std::vector<std::string>{"weight", "bias"});
}

TEST_CASE("hooks run before forward, after it, and before backward enters a module") {
  Linear first(2, 2), second(2, 2);
  std::vector<std::string> events;
  const int before = second.register_forward_pre_hook([&] { events.emplace_back("before"); });
  const int after = second.register_forward_hook([&](const Tensor& y) {
    events.emplace_back("after");
    CHECK(y.shape() == Shape{1, 2});
    y.register_hook([&](const Tensor& grad) {
      events.emplace_back("backward");
      CHECK(grad.shape() == Shape{1, 2});
      CHECK(in_backward());
    });
  });
  second.weight.register_post_accumulate_grad_hook(
      [&](const Tensor&) { events.emplace_back("gradient"); });
  first.weight.register_post_accumulate_grad_hook(
      [&](const Tensor&) { events.emplace_back("gradient of the first"); });
  const auto run = [&] {
    events.clear();
    backward(sum(second.forward(first.forward(Tensor::full({1, 2}, 1.0)))));
  };
  run();
  CHECK(events == std::vector<std::string>{"before", "after", "backward", "gradient",
                                           "gradient of the first"});
  CHECK_FALSE(in_backward());
  second.remove_forward_hook(before);
  second.remove_forward_hook(99);
  run();
  CHECK(events ==
        std::vector<std::string>{"after", "backward", "gradient", "gradient of the first"});
  second.remove_forward_hook(after);
  run();
  CHECK(events == std::vector<std::string>{"gradient", "gradient of the first"});
}

TEST_CASE("a forward hook may remove itself and others, and register new ones") {
  Linear layer(2, 2);
  std::vector<std::string> events;
  int before = 0, after = 0;
  before = layer.register_forward_pre_hook([&] {
    events.emplace_back("before, once");
    layer.remove_forward_hook(before);
    for (int i = 0; i < 8; ++i)
      layer.register_forward_pre_hook([&] { events.emplace_back("before, new"); });
  });
  layer.register_forward_pre_hook([&] { events.emplace_back("before, always"); });
  after = layer.register_forward_hook([&](const Tensor&) {
    events.emplace_back("after, once");
    layer.remove_forward_hook(after);
  });
  layer.register_forward_hook([&](const Tensor&) { events.emplace_back("after, always"); });

  layer.forward(Tensor::full({1, 2}, 1.0));
  CHECK(events ==
        std::vector<std::string>{"before, once", "before, always", "after, once", "after, always"});
  events.clear();
  layer.forward(Tensor::full({1, 2}, 1.0));
  CHECK(events.size() == 10);
  CHECK(events.front() == "before, always");
  CHECK(events.back() == "after, always");
}

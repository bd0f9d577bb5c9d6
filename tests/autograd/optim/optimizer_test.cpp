#include "autograd/optim/optimizer.hpp"

#include <cmath>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

NamedTensor parameter(const std::string& name, std::vector<double> values,
                      std::vector<double> gradient) {
  const auto size = static_cast<std::int64_t>(values.size());
  const Tensor p = Tensor::from(values, {size}).set_requires_grad(true);
  if (!gradient.empty()) p.set_grad(Tensor::from(gradient, {size}));
  return {name, p};
}

}  // namespace

TEST_CASE("SGD follows its formula, with decay, momentum and Nesterov's momentum") {
  const NamedTensor p = parameter("p", {1}, {0.5});
  SGD({{{p}, 0.1, 0}}).step();
  CHECK(p.tensor.item() == doctest::Approx(1 - 0.1 * 0.5).epsilon(1e-14));

  const NamedTensor d = parameter("d", {1}, {0.5});
  SGD({{{d}, 0.1, 0.2}}).step();
  CHECK(d.tensor.item() == doctest::Approx(1 - 0.1 * (0.5 + 0.2)).epsilon(1e-14));

  const NamedTensor m = parameter("m", {1}, {0.5});
  SGD momentum({{{m}, 0.1, 0}}, {.momentum = 0.9});
  momentum.step(), momentum.step();
  CHECK(m.tensor.item() == doctest::Approx(1 - 0.1 * 0.5 - 0.1 * (0.9 * 0.5 + 0.5)).epsilon(1e-14));

  const NamedTensor n = parameter("n", {1}, {0.5});
  SGD nesterov({{{n}, 0.1, 0}}, {.momentum = 0.9, .nesterov = true});
  nesterov.step();
  CHECK(n.tensor.item() == doctest::Approx(1 - 0.1 * (0.5 + 0.9 * 0.5)).epsilon(1e-14));
}

TEST_CASE("AdamW follows Algorithm 2 of its paper over several steps") {
  const double lr = 0.01, decay = 0.1, beta1 = 0.8, beta2 = 0.95, eps = 1e-6;
  const NamedTensor p = parameter("p", {1, -2, 3}, {0, 0, 0});
  AdamW optimizer({{{p}, lr, decay}}, {beta1, beta2, eps});
  std::vector<double> w = {1, -2, 3}, m(3), v(3);
  for (int t = 1; t <= 5; ++t) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double g = std::sin(static_cast<double>(t) + static_cast<double>(i));
      p.tensor.grad().data<double>()[i] = g;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(beta1, t)), v_hat = v[i] / (1 - std::pow(beta2, t));
      w[i] = w[i] - lr * decay * w[i] - lr * m_hat / (std::sqrt(v_hat) + eps);
    }
    optimizer.step();
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(p.tensor.data<double>()[i] == doctest::Approx(w[i]).epsilon(1e-12));
  }
}

TEST_CASE(
    "the first step of AdamW has the size of the learning rate and the sign of the gradient") {
  const NamedTensor p = parameter("p", {1, 1}, {1e-3, -50});
  AdamW({{{p}, 0.25, 0}}).step();
  CHECK(p.tensor.data<double>()[0] == doctest::Approx(0.75).epsilon(1e-4));
  CHECK(p.tensor.data<double>()[1] == doctest::Approx(1.25).epsilon(1e-4));
}

TEST_CASE("each group has its own rates, and a parameter without gradient does not change") {
  const NamedTensor a = parameter("a", {1}, {1}), b = parameter("b", {1}, {1}),
                    c = parameter("c", {1}, {});
  SGD optimizer({{{a}, 0.1, 0}, {{b, c}, 0.5, 0}});
  optimizer.step();
  CHECK(a.tensor.item() == doctest::Approx(0.9));
  CHECK(b.tensor.item() == doctest::Approx(0.5));
  CHECK(c.tensor.item() == 1);
  optimizer.set_learning_rate(0);
  optimizer.step();
  CHECK(b.tensor.item() == doctest::Approx(0.5));
  optimizer.groups()[0].learning_rate = 1;
  optimizer.step();
  CHECK(a.tensor.item() == doctest::Approx(-0.1));
  optimizer.zero_grad();
  CHECK(!a.tensor.grad().defined());

  AdamW adam({{{b, c}, 0.1, 0}});
  b.tensor.set_grad(Tensor::full({1}, 1, DType::fp64));
  adam.step();
  CHECK(adam.state()[2].tensor.item() == 1);
  CHECK(adam.state()[5].tensor.item() == 0);  // c was not updated
}

TEST_CASE("state has names, and a copy of it continues with the same bits") {
  const auto steps = [](const Tensor& p, AdamW& optimizer, int from, int to) {
    for (int t = from; t < to; ++t) {
      p.set_grad(Tensor::full({2}, std::cos(t), DType::fp64));
      optimizer.step();
    }
  };
  const NamedTensor p = parameter("w", {1, 2}, {});
  AdamW first({{{p}, 0.1, 0.01}});
  const std::vector<NamedTensor> state = first.state();
  REQUIRE(state.size() == 3);
  CHECK(state[0].name == "w.exp_avg");
  CHECK(state[1].name == "w.exp_avg_sq");
  CHECK(state[2].name == "w.step");
  steps(p.tensor, first, 0, 3);
  CHECK(state[2].tensor.item() == 3);

  const NamedTensor q = {"w", p.tensor.clone().detach().set_requires_grad(true)};
  AdamW second({{{q}, 0.1, 0.01}});
  for (std::size_t i = 0; i < state.size(); ++i) second.state()[i].tensor.copy_(state[i].tensor);
  steps(p.tensor, first, 3, 6);
  steps(q.tensor, second, 3, 6);
  CHECK(largest_difference(p.tensor, q.tensor) == 0);
}

TEST_CASE("state_layout declares what state() holds, entry by entry") {
  for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16}) {
    const Tensor p = Tensor::zeros({2, 1}, dtype);
    const std::vector<ParameterGroup> groups = {{{{"p", p}}, 0.1, 0}};
    const auto check = [&](const Optimizer& optimizer, std::size_t entries) {
      const std::vector<StateEntry> layout = optimizer.state_layout(dtype);
      const std::vector<NamedTensor> state = optimizer.state();
      REQUIRE(layout.size() == entries + (dtype == DType::bf16 ? 1 : 0));
      REQUIRE(state.size() == layout.size());
      for (std::size_t i = 0; i < layout.size(); ++i) {
        CHECK(state[i].name == "p." + layout[i].name);
        CHECK(state[i].tensor.shape() == layout[i].shape_for(p.shape()));
        CHECK(state[i].tensor.dtype() == layout[i].dtype);
        CHECK(layout[i].per_element == (layout[i].name != "step"));
      }
    };
    check(AdamW(groups), 3);
    check(SGD(groups, {.momentum = 0.9}), 2);
    check(SGD(groups), 0);
  }
}

TEST_CASE("an optimizer updates a part of a flat buffer like any parameter") {
  const Tensor flat = Tensor::from<double>({1, 2, 3, 4}, {4}),
               flat_grad = Tensor::full({4}, 1, DType::fp64);
  const Tensor shard = flat.narrow(0, 1, 2);
  shard.set_grad(flat_grad.narrow(0, 1, 2));
  SGD({{{{"shard", shard}}, 1, 0}}).step();
  CHECK(to_vector(flat) == std::vector<double>{1, 1, 2, 4});
}

TEST_CASE("clipping scales gradients to the maximal norm and returns the norm before") {
  const NamedTensor a = parameter("a", {0, 0}, {3, 0}), b = parameter("b", {0}, {4}),
                    c = parameter("c", {0}, {});
  const std::vector<Tensor> all = {a.tensor, b.tensor, c.tensor};
  CHECK(grad_norm_squared(all) == 25);
  CHECK(clip_grad_norm(all, 10) == 5);
  CHECK(b.tensor.grad().item() == 4);  // below the maximal norm: unchanged
  CHECK(clip_grad_norm(all, 1) == 5);
  CHECK(b.tensor.grad().item() == doctest::Approx(0.8).epsilon(1e-6));
  CHECK(std::sqrt(grad_norm_squared(all)) == doctest::Approx(1).epsilon(1e-6));
  CHECK(std::isnan(clip_factor(std::nan(""), 1)));
  CHECK_THROWS_WITH_AS(clip_grad_norm(all, 0),
                       "clip_grad_norm: expected a maximal norm above 0, got 0", Error);
}

TEST_CASE("a gradient scale holds for one step and does not change the gradients") {
  for (const bool adamw : {false, true}) {
    const NamedTensor a = parameter("a", {1, 2}, {3, 4}), b = parameter("b", {1, 2}, {1.5, 2});
    const auto make = [&](const NamedTensor& p) -> std::unique_ptr<Optimizer> {
      if (adamw) return std::make_unique<AdamW>(std::vector<ParameterGroup>{{{p}, 0.1, 0.1}});
      return std::make_unique<SGD>(std::vector<ParameterGroup>{{{p}, 0.1, 0.1}},
                                   SgdOptions{.momentum = 0.9});
    };
    const auto scaled = make(a), plain = make(b);
    scaled->set_gradient_scale(0.5);
    scaled->step(), plain->step();
    CHECK(to_vector(a.tensor) == to_vector(b.tensor));
    CHECK(to_vector(a.tensor.grad()) == std::vector<double>{3, 4});
    b.tensor.set_grad(a.tensor.grad().clone());
    scaled->step(), plain->step();
    CHECK(to_vector(a.tensor) == to_vector(b.tensor));
  }
}

TEST_CASE("the norm of many small fp32 gradients is summed in fp64") {
  const Tensor p = Tensor::zeros({1 << 22}).set_requires_grad(true);
  p.set_grad(Tensor::full({1 << 22}, 1e-3));
  CHECK(grad_norm_squared(std::vector<Tensor>{p}) == doctest::Approx(4.194304).epsilon(1e-7));
}

TEST_CASE("an optimizer rejects parameters that it cannot update") {
  const NamedTensor p = parameter("p", {1}, {});
  CHECK_THROWS_WITH_AS(SGD({{{p, {"again", p.tensor}}, 0.1, 0}}),
                       "optimizer: 'again' is listed twice; it would be updated twice", Error);
  CHECK_THROWS_WITH_AS(SGD(std::vector<ParameterGroup>{}),
                       "optimizer: expected at least one parameter, got none", Error);
  CHECK_THROWS_WITH_AS(SGD({{{{"ids", Tensor::zeros({2}, DType::int32)}}, 0.1, 0}}),
                       "optimizer: expected 'ids' to be contiguous and fp32, fp64 or bf16, got "
                       "int32 [2] with strides [1]",
                       Error);
  CHECK_THROWS_AS(AdamW({{{p}, 0.1, 0}}, {.beta1 = 1}), Error);
}

// The check of gradients finds what is wrong, and nothing else.
#include "autograd/engine/gradcheck.hpp"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "autograd/engine/node.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

// x itself; backward multiplies element `element` of the gradient by `factor`.
Tensor with_wrong_gradient(const Tensor& x, std::int64_t element, double factor) {
  return record("wrong", x.detach().clone(), {x}, [=](const Node&, const Tensor& dy) -> Gradients {
    const Tensor dx = dy.clone();
    dx.values<double>()[static_cast<std::size_t>(element)] *= factor;
    return {dx};
  });
}

}  // namespace

TEST_CASE("gradcheck accepts right gradients and leaves the inputs as they were") {
  const std::vector<Tensor> inputs = {random_tensor({2, 3, 5}, "x"), random_tensor({4, 5}, "w"),
                                      random_tensor({4}, "unused")};
  const std::vector<double> before = to_vector(inputs[0]);
  inputs[1].set_grad(Tensor::full({4, 5}, 7, DType::fp64));  // of an earlier pass
  CHECK(gradient_faults([](auto& in) { return linear(in[0], in[1]); }, inputs).empty());
  CHECK(to_vector(inputs[0]) == before);
  CHECK(gradient_faults([](auto& in) { return scale(in[0], 1e6); }, {inputs[0]}).empty());
}

TEST_CASE("gradcheck names the elements that are wrong") {
  const auto last_of_w = [](auto& in) {
    return linear(in[0], with_wrong_gradient(in[1], 5, 1.01));
  };
  const auto faults =
      gradient_faults(last_of_w, {random_tensor({4, 3}, "x"), random_tensor({2, 3}, "w")});
  REQUIRE(faults.size() == 1);
  CHECK(faults[0].input == 1);
  CHECK(faults[0].element == 5);
  CHECK(faults[0].by_backward == doctest::Approx(1.01 * faults[0].by_differences));
}

TEST_CASE("gradcheck refuses a forgotten use and a gradient that is not a number") {
  const auto forgets_a_use = [](auto& in) { return mul(in[0], in[0].detach()); };
  CHECK(gradient_faults(forgets_a_use, {random_tensor({6}, "x")}).size() == 6);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto not_a_number = [=](auto& in) { return with_wrong_gradient(in[0], 2, nan); };
  const auto faults = gradient_faults(not_a_number, {random_tensor({4}, "x")});
  REQUIRE(faults.size() == 1);
  CHECK(std::isnan(faults[0].by_backward));
}

TEST_CASE("gradcheck refuses errors that would cancel in a plain sum of the outputs") {
  // The elements of x - mean(x) add up to 0, whatever x is.
  const auto doubled = [](auto& in) {
    const Tensor x = with_wrong_gradient(in[0], 0, 2);
    return add(x, scale(mean(x), -1));
  };
  CHECK(gradient_faults(doubled, {random_tensor({5}, "x")}).size() == 1);
}

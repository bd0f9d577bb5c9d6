// Judges the backward of linear: its three gradients, and what it computes and writes to get them.
#include <array>

#include "autograd/engine/node.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/07-linear-backward/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

constexpr std::array names = {"dx", "dW", "db"};

// y = linear(x, W, b), and the gradient dy of the loss.
struct Problem {
  Shape x;  // [..., in]
  std::int64_t out = 0;
  bool bias = true;
  bool x_is_view = false, dy_is_view = false;     // the last two dimensions are transposed
  std::array<bool, 3> trained{true, true, true};  // x, W, b

  std::string text() const {
    return fmt::format("x {}{}, W [{}, {}]{}{}", x, x_is_view ? " (a transposed view)" : "", out,
                       x.back(), bias ? "" : ", no bias",
                       dy_is_view ? ", dy a transposed view" : "");
  }
};

std::vector<Problem> problems_of(std::uint64_t seed) {
  const auto in = 3 + static_cast<std::int64_t>(seed % 4), out = in + 2;
  return {{{in}, out},
          {{4, in}, out},
          {{4, in}, in},
          {{4, in}, out, false},
          {{2, 3, in}, out},
          {{2, 1, 3, in}, out},
          {{4, in}, out, true, true},
          {{2, 3, in}, out, true, false, true},
          {{2, 3, in}, in, true, true, true}};
}

std::vector<Problem> frozen_problems(std::uint64_t seed) {
  const auto in = 3 + static_cast<std::int64_t>(seed % 4), out = in + 2;
  std::vector<Problem> problems;
  for (const auto& trained :
       {std::array{true, true, true}, std::array{false, true, true}, std::array{true, false, true},
        std::array{true, true, false}, std::array{false, false, true}})
    problems.push_back({.x = {4, in}, .out = out, .trained = trained});
  return problems;
}

// A tensor of this shape whose memory is in another order, if it is a view.
Tensor random_view(Shape shape, bool is_view, std::uint64_t seed, std::uint64_t which) {
  if (!is_view) return random_tensor(std::move(shape), seed, which);
  std::swap(shape.back(), shape[shape.size() - 2]);
  return random_tensor(std::move(shape), seed, which).transpose(-1, -2);
}

// The gradients {dx, dW, db} of one problem, how many products backward computed, and dy after it.
template <class Linear>
Json solved(const Problem& problem, std::uint64_t seed, Linear&& linear) {
  Tensor x = random_view(problem.x, problem.x_is_view, seed, 0),
         w = random_tensor({problem.out, problem.x.back()}, seed, 1),
         b = problem.bias ? random_tensor({problem.out}, seed, 2) : Tensor();
  x.set_requires_grad(problem.trained[0]), w.set_requires_grad(problem.trained[1]);
  if (b.defined()) b.set_requires_grad(problem.trained[2]);
  const Tensor y = linear(x, w, b);
  const Tensor dy = random_view(y.shape(), problem.dy_is_view, seed, 3);
  const Profile profile;
  const Gradients gradients = y.grad_fn()->backward(dy);
  int products = 0;
  for (const Product& each : profile.products()) products += each.calls;
  Json result = {{"products", products}, {"dy", json_of(dy)}};
  for (std::size_t i = 0; i < names.size(); ++i)
    result[names[i]] = i < gradients.size() ? json_of(gradients[i]) : Json();
  return result;
}

using Problems = std::vector<Problem> (*)(std::uint64_t seed);

template <Problems problems>
Json collect(World& world) {
  Json results = Json::array();
  for (const Problem& each : problems(world.seed())) {
    world.doing("backward of linear, " + each.text());
    results.push_back(solved(each, world.seed(), student_linear));
  }
  return results;
}

// The first sentence that `fault` says about a problem, after the text of the problem.
template <class Fault>
Verdict first_fault_of_problems(const std::vector<Problem>& problems, const Run& run,
                                Fault&& fault) {
  for (std::size_t k = 0; k < problems.size(); ++k) {
    const Json expected = solved(problems[k], run.seed, autograd::linear);
    const std::string says = fault(problems[k], run.ranks[0].at(k), expected);
    if (!says.empty()) return {{problems[k].text() + ": " + says}};
  }
  return {};
}

Verdict judge_gradients(const Run& run) {
  return first_fault_of_problems(problems_of(run.seed), run,
                                 [](const Problem&, const Json& seen, const Json& expected) {
                                   return first_difference({"dx", "dW", "db"}, seen, expected);
                                 });
}

// A product for each gradient that somebody needs, and no more. The bias needs none.
Verdict judge_frozen(const Run& run) {
  return first_fault_of_problems(
      frozen_problems(run.seed), run,
      [](const Problem& problem, const Json& seen, const Json& expected) -> std::string {
        std::vector<std::string> frozen;
        for (std::size_t i = 0; i < names.size(); ++i)
          if (!problem.trained[i]) frozen.emplace_back(names[i] + 1);
        const std::string text = frozen.empty()
                                     ? "everything is trained"
                                     : fmt::format("frozen {}", fmt::join(frozen, " and "));
        const int products = seen.at("products"), wanted = expected["products"];
        if (products > wanted)
          return fmt::format("{}: {} products, expected {}", text, products, wanted);
        for (std::size_t i = 0; i < names.size(); ++i)
          if (!problem.trained[i] && !seen.at(names[i]).is_null())
            return fmt::format("{}: {} is computed, but node.needs({}) is false", text, names[i],
                               i);
        return "";
      });
}

Verdict judge_untouched(const Run& run) {
  return first_fault_of_problems(
      problems_of(run.seed), run, [](const Problem&, const Json& seen, const Json& expected) {
        const std::string says = difference("dy", seen.at("dy"), expected["dy"]);
        return says.empty() ? says
                            : says +
                                  ": backward wrote to it, and other nodes may "
                                  "hold the same memory";
      });
}

const Judge judge("07-linear-backward", {{"gradients", collect<problems_of>, judge_gradients},
                                         {"frozen", collect<frozen_problems>, judge_frozen},
                                         {"untouched", collect<problems_of>, judge_untouched}});

}  // namespace
}  // namespace ringside::exercises

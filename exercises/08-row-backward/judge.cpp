// Judges the rows of rms_norm's backward, and of cross_entropy.
#include <array>
#include <cmath>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/08-row-backward/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

constexpr double eps = 1e-5;
constexpr std::int32_t ignored = -100;

// ---- rms_norm ----

std::vector<Shape> shapes_of(std::uint64_t seed) {
  const auto n = 4 + static_cast<std::int64_t>(seed % 5);
  return {{n}, {1, n}, {5, n}, {2, 3, n}, {3, 1}};
}

template <class RmsNorm>
Json gradients_of_norm(const Shape& shape, std::uint64_t seed, RmsNorm&& rms_norm) {
  Tensor x = random_tensor(shape, seed, 0), w = random_tensor({shape.back()}, seed, 1);
  x.set_requires_grad(true), w.set_requires_grad(true);
  const Tensor y = rms_norm(x, w, eps), dy = random_tensor(shape, seed, 2);
  const Gradients gradients = y.grad_fn()->backward(dy);
  return {{"dx", json_of(gradients.at(0))}, {"dw", json_of(gradients.at(1))}};
}

// dx as it would be if r did not depend on x.
Json dx_of_constant_r(const Shape& shape, std::uint64_t seed) {
  const Tensor x = random_tensor(shape, seed, 0), w = random_tensor({shape.back()}, seed, 1),
               dy = random_tensor(shape, seed, 2);
  const std::int64_t n = shape.back();
  for (std::int64_t row = 0; row < x.elements(); row += n) {
    double squares = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += std::pow(x.values<double>()[row + i], 2);
    for (std::int64_t i = 0; i < n; ++i)
      dy.values<double>()[row + i] *= w.values<double>()[i] / std::sqrt(squares / n + eps);
  }
  return json_of(dy);
}

Json collect_norm(World& world) {
  Json results = Json::array();
  for (const Shape& shape : shapes_of(world.seed()))
    results.push_back(gradients_of_norm(shape, world.seed(), student_rms_norm));
  return results;
}

Verdict judge_norm(const Run& run) {
  const std::vector<Shape> shapes = shapes_of(run.seed);
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const Json expected = gradients_of_norm(shapes[k], run.seed, rms_norm), &seen = run.ranks[0][k];
    const std::string says = first_difference({"dw", "dx"}, seen, expected);
    if (says.empty()) continue;
    const bool constant =
        difference("", seen.at("dx"), dx_of_constant_r(shapes[k], run.seed)).empty();
    return {
        {fmt::format("rms_norm, x {}: {}{}", shapes[k], says,
                     constant ? " (r depends on x, too: yours is the dx of a constant r)" : "")}};
  }
  return {};
}

// ---- cross_entropy ----

// Logits [tokens, V], each `scale` times a standard normal number, and their targets.
struct Loss {
  std::string name;
  double scale = 1;
  std::vector<std::int32_t> targets;
  std::int64_t vocabulary = 7;
};

enum { plain, large, ignoring };
const std::vector<Loss> losses[] = {
    {{"one token", 1, {3}}, {"4 tokens", 1, {0, 6, 3, 3}}, {"a vocabulary of 1", 1, {0, 0}, 1}},
    {{"logits of +-1e4", 1e4, {0, 6, 3, 2}}, {"logits of +-1e2", 1e2, {5, 1}}},
    {{"4 tokens, 2 of them ignored", 1, {2, ignored, 5, ignored}},
     {"3 tokens, all ignored", 1, {ignored, ignored, ignored}}}};

template <class CrossEntropy>
Json solved(const Loss& problem, std::uint64_t seed, CrossEntropy&& cross_entropy) {
  const auto tokens = static_cast<std::int64_t>(problem.targets.size());
  Tensor z = random_tensor({tokens, problem.vocabulary}, seed, 3);
  for (double& each : z.values<double>()) each *= problem.scale;
  z.set_requires_grad(true);
  const Tensor loss = cross_entropy(z, Tensor::from(problem.targets, {tokens}), ignored);
  const Tensor dz = loss.grad_fn()->backward(Tensor::scalar(0.7, DType::fp64)).at(0);
  return {{"loss", json_of(loss)}, {"dz", json_of(dz)}};
}

template <int group>
Json collect_loss(World& world) {
  Json results = Json::array();
  for (const Loss& each : losses[group])
    results.push_back(solved(each, world.seed(), student_cross_entropy));
  return results;
}

template <int group>
Verdict judge_loss(const Run& run) {
  for (std::size_t k = 0; k < losses[group].size(); ++k) {
    const Loss& problem = losses[group][k];
    const std::string says = first_difference({"loss", "dz"}, run.ranks[0].at(k),
                                              solved(problem, run.seed, cross_entropy));
    if (!says.empty()) return {{fmt::format("cross_entropy, {}: {}", problem.name, says)}};
  }
  return {};
}

// ---- threads ----

constexpr std::array numbers_of_threads = {1, 2, 8};

// Rows share nothing, so the bits of dx, dz and the losses do not depend on the number of threads.
Json collect_threads(World& world) {
  Json results = Json::array();
  Tensor x = random_tensor({2048, 128}, world.seed(), 0), w = random_tensor({128}, world.seed(), 1),
         dy = random_tensor(x.shape(), world.seed(), 2);
  x.set_requires_grad(true);
  std::vector<std::int32_t> targets(2048);
  for (std::size_t t = 0; t < targets.size(); ++t) targets[t] = static_cast<std::int32_t>(t % 128);
  for (const int n : numbers_of_threads) {
    set_threads(n);
    const Tensor y = student_rms_norm(x, w, eps),
                 loss = student_cross_entropy(x, Tensor::from(targets, {2048}), ignored);
    results.push_back(
        {{"dx of rms_norm", fingerprint(y.grad_fn()->backward(dy).at(0))},
         {"the loss of cross_entropy", fingerprint(loss)},
         {"dz of cross_entropy",
          fingerprint(loss.grad_fn()->backward(Tensor::scalar(1, DType::fp64)).at(0))}});
  }
  return results;
}

Verdict judge_threads(const Run& run) {
  for (std::size_t k = 1; k < numbers_of_threads.size(); ++k)
    for (const auto& [name, bits] : run.ranks[0].at(k).items())
      if (bits != run.ranks[0].at(0).at(name))
        return {
            {fmt::format("{} has other bits with {} threads than with 1: rows must share nothing",
                         name, numbers_of_threads[k])}};
  return {};
}

const Judge judge("08-row-backward", {{"norm", collect_norm, judge_norm},
                                      {"loss", collect_loss<plain>, judge_loss<plain>},
                                      {"large", collect_loss<large>, judge_loss<large>},
                                      {"ignored", collect_loss<ignoring>, judge_loss<ignoring>},
                                      {"threads", collect_threads, judge_threads}});

}  // namespace
}  // namespace ringside::exercises

// Judges a check of gradients: it must accept functions with a right backward, and refuse others.
#include <fmt/ranges.h>

#include "exercises/09-gradcheck/interface.hpp"
#include "exercises/judge/autograd/gradient_probes.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

std::vector<Tensor> inputs_of(const GradientProbe& probe, std::uint64_t seed) {
  std::vector<Tensor> inputs;
  for (const Shape& shape : probe.inputs)
    inputs.push_back(random_tensor(shape, seed, inputs.size()));
  return inputs;
}

// The faults found in each probe, and the bits of its inputs afterwards.
template <const std::vector<GradientProbe>& probes>
Json collect(World& world) {
  Json results = Json::array();
  for (const GradientProbe& probe : probes) {
    world.doing("the check of " + probe.name);
    std::vector<Tensor> inputs = inputs_of(probe, world.seed());
    // A gradient of an earlier pass must not count.
    for (Tensor& input : inputs)
      input.set_requires_grad(true).set_grad(Tensor::full(input.shape(), 1, DType::fp64));
    Json faults = student_gradcheck(probe.function, inputs), bits = Json::array();
    for (const Tensor& input : inputs) bits.push_back(fingerprint(input));
    results.push_back({{"faults", std::move(faults)}, {"bits", std::move(bits)}});
  }
  return results;
}

Verdict judge_accepts(const Run& run) {
  for (std::size_t k = 0; k < right_gradients.size(); ++k) {
    const FaultyElements faults = run.ranks[0].at(k).at("faults");
    if (!faults.empty())
      return {{fmt::format(
          "{}: refused, but its backward is right (input {}, element {}, and {} more)",
          right_gradients[k].name, faults[0].first, faults[0].second, faults.size() - 1)}};
  }
  return {};
}

Verdict judge_refuses(const Run& run) {
  for (std::size_t k = 0; k < wrong_gradients.size(); ++k)
    if (run.ranks[0].at(k).at("faults").empty())
      return {{wrong_gradients[k].name + ": accepted, but its backward is wrong"}};
  return {};
}

Verdict judge_names(const Run& run) {
  for (std::size_t k = 0; k < wrong_gradients.size(); ++k) {
    const FaultyElements faults = run.ranks[0].at(k).at("faults");
    if (!wrong_gradients[k].faults.empty() && faults != wrong_gradients[k].faults)
      return {{fmt::format("{}: named the faults {} (input, element), expected {}",
                           wrong_gradients[k].name, faults, wrong_gradients[k].faults)}};
  }
  return {};
}

Verdict judge_restores(const Run& run) {
  for (std::size_t k = 0; k < right_gradients.size(); ++k) {
    const std::vector<Tensor> inputs = inputs_of(right_gradients[k], run.seed);
    for (std::size_t n = 0; n < inputs.size(); ++n)
      if (run.ranks[0].at(k).at("bits").at(n) != fingerprint(inputs[n]))
        return {{fmt::format("{}: after the check input {} has other bits than before",
                             right_gradients[k].name, n)}};
  }
  return {};
}

const Judge judge("09-gradcheck", {{"accepts", collect<right_gradients>, judge_accepts},
                                   {"refuses", collect<wrong_gradients>, judge_refuses},
                                   {"names", collect<wrong_gradients>, judge_names},
                                   {"restores", collect<right_gradients>, judge_restores}});

}  // namespace
}  // namespace ringside::exercises

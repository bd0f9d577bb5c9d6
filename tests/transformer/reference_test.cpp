// Compares the model with the Llama, Mixtral, Qwen3 and Qwen3-MoE of transformers on PyTorch.
// reference/make_reference.py computed the numbers in reference/ there, in fp64.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include <doctest/doctest.h>

#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/inference/evaluation.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using autograd::Tensor;

namespace {

const std::filesystem::path reference = RINGSIDE_REFERENCE_DIR;

std::vector<double> stored(SafetensorsFile& file, const std::string& name) {
  std::vector<double> values(file.entry(name).bytes() / sizeof(double));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values;
  autograd::dispatch(tensor.dtype(), "values_of", [&](auto zero) {
    const auto own = tensor.values<decltype(zero)>();
    values.assign(own.begin(), own.end());
  });
  return values;
}

double worst_difference(std::span<const double> a, std::span<const double> b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

struct Tolerance {
  double loss, logits, gradients;
};

void check_against(const std::string& name, DType dtype, const Tolerance& tolerance) {
  CAPTURE(name);
  const Model model(load_config(reference / name), dtype);
  load_parameters(reference / name, model);
  const auto sequences = read_tokens(reference / "tokens.json", model.config().sequence);
  const Evaluation ours = evaluate(model, sequences, {.gradients = true, .logits = true});

  SafetensorsFile expected(reference / name / "expected.safetensors");
  CHECK(std::abs(ours.loss - stored(expected, "loss")[0]) < tolerance.loss);
  const auto logits = stored(expected, "logits");
  REQUIRE(ours.logits.size() == 3);
  for (std::size_t s = 0; s < 3; ++s) {
    const auto of_sequence = std::span(logits).subspan(s * logits.size() / 3, logits.size() / 3);
    CHECK(worst_difference(values_of(ours.logits[s]), of_sequence) < tolerance.logits);
  }
  CHECK(expected.entries().size() == model.named_parameters().size() + 2);
  for (const auto& [parameter, tensor] : model.named_parameters()) {
    CAPTURE(parameter);
    CHECK(worst_difference(values_of(tensor.grad()), stored(expected, "gradient." + parameter)) <
          tolerance.gradients);
  }
}

constexpr const char* models[] = {"untied_grouped", "tied",  "llama3_fp16", "linear",
                                  "mixtral",        "qwen3", "qwen3_moe"};

}  // namespace

TEST_CASE("loss, logits and every gradient equal those of PyTorch in fp64") {
  for (const char* name : models) check_against(name, DType::fp64, {1e-10, 1e-10, 1e-10});
}

TEST_CASE("loss, logits and every gradient in fp32 equal those of PyTorch within rounding") {
  for (const char* name : models) check_against(name, DType::fp32, {1e-6, 1e-5, 1e-5});
}

// Training in bf16 beside fp32: the gradients of a whole model, and the loss of 300 steps. The test
// runs twice: as this machine multiplies bf16 matrices, and with RINGSIDE_ONEDNN=off.
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/kernels/products/bf16_products.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "base/random.hpp"
#include "transformer/model.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using autograd::Tensor;

namespace {

// Sequences that can be learnt: each token follows from the one before, and sometimes from chance.
struct Batch {
  Tensor tokens, targets;
};

Batch batch_of(const Config& config, std::int64_t sequences, std::int64_t length,
               std::uint64_t step) {
  const auto vocabulary = static_cast<std::uint64_t>(config.vocabulary);
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t s = 0; s < sequences; ++s) {
    std::uint64_t token = random_below(vocabulary, 1, step, static_cast<std::uint64_t>(s));
    for (std::int64_t t = 0; t < length; ++t) {
      tokens.push_back(static_cast<std::int32_t>(token));
      const auto roll = random_below(8, 2, step, static_cast<std::uint64_t>(s * length + t));
      token = (5 * token + (roll == 0 ? 3 : 1)) % vocabulary;
      targets.push_back(static_cast<std::int32_t>(token));
    }
  }
  return {Tensor::from(tokens, {sequences, length}), Tensor::from(targets, {sequences, length})};
}

std::vector<Tensor> parameters_of(const Model& model) {
  std::vector<Tensor> parameters;
  for (const auto& parameter : model.named_parameters()) parameters.push_back(parameter.tensor);
  return parameters;
}

// The mean loss of the last ten of 300 steps.
double loss_after_training(const Config& config, DType dtype) {
  const Model model(config, dtype);
  autograd::AdamW optimizer(
      {{.parameters = model.named_parameters(), .learning_rate = 1e-3, .weight_decay = 0.1}});
  double last = 0;
  for (std::uint64_t step = 0; step < 300; ++step) {
    const Batch batch = batch_of(config, 4, 32, step);
    optimizer.zero_grad();
    const Tensor loss = model.loss(batch.tokens, batch.targets);
    autograd::backward(loss);
    autograd::clip_grad_norm(parameters_of(model), 1);
    optimizer.step();
    if (step >= 290) last += loss.item() / 10;
  }
  return last;
}

}  // namespace

TEST_CASE("bf16 gradients of a whole model are within 2e-2 of fp32's") {
  MESSAGE("products of bf16: " << (autograd::has_bf16_products()
                                       ? std::string("oneDNN")
                                       : autograd::why_no_bf16_products()));
  const Config config = named_config("tiny");
  const Model bf16(config, DType::bf16), fp32(config, DType::fp32);
  const auto narrow = parameters_of(bf16), wide = parameters_of(fp32);
  for (std::size_t i = 0; i < narrow.size(); ++i) autograd::convert_into(wide[i], narrow[i]);
  const Batch batch = batch_of(config, 2, 64, 7);
  for (const Model* model : {&bf16, &fp32})
    autograd::backward(model->loss(batch.tokens, batch.targets));

  double of_difference = 0, of_fp32 = 0;
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    const Tensor a = autograd::to_compute_dtype(narrow[i].grad()), b = wide[i].grad();
    for (std::int64_t k = 0; k < a.elements(); ++k) {
      const double x = a.data<float>()[k], y = b.data<float>()[k];
      of_difference += (x - y) * (x - y);
      of_fp32 += y * y;
    }
  }
  const double error = std::sqrt(of_difference / of_fp32);
  MESSAGE(fmt::format("relative error of all gradients: {:.2e}", error));
  CHECK(error < 2e-2);
  CHECK(error > 1e-4);  // the bf16 model does round
}

TEST_CASE("300 steps of tiny in bf16 reach the loss of fp32") {
  const Config config = named_config("tiny");
  const double fp32 = loss_after_training(config, DType::fp32),
               bf16 = loss_after_training(config, DType::bf16);
  MESSAGE(fmt::format("loss at the end: fp32 {:.4f}, bf16 {:.4f}", fp32, bf16));
  CHECK(fp32 < 3);  // of 5.5 at first: it has learnt
  CHECK(std::abs(bf16 - fp32) < 0.02 * fp32);
}

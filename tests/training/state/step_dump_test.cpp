#include "training/state/step_dump.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/safetensors.hpp"

using namespace ringside;
using namespace ringside::training;
using namespace ringside::transformer;
using autograd::DType;
using autograd::Tensor;
using tests::tiny_config;

TEST_CASE("a step dump has all parameters and the gradients that exist") {
  TemporaryDirectory directory;
  Model model(tiny_config(), DType::fp64);
  Tensor frozen = model.parameters()[3];
  frozen.set_requires_grad(false);
  autograd::backward(model.loss(Tensor::from<std::int32_t>({1, 2}, {1, 2}),
                                Tensor::from<std::int32_t>({2, 3}, {1, 2})));
  const auto path = directory.path() / "step0001.safetensors";
  dump_step(
      path,
      [&](const SeeTensor& see) {
        for (const auto& each : model.named_parameters()) see(each);
      },
      [&](const SeeTensor& see) {
        for (const auto& [name, tensor] : model.named_parameters())
          if (tensor.grad().defined()) see({name, tensor.grad()});
      });
  SafetensorsFile file(path);
  CHECK(file.entries().size() == 2 * 21 - 1);
  const auto parameter = model.named_parameters()[5];
  std::vector<double> gradient(static_cast<std::size_t>(parameter.tensor.elements()));
  file.read("gradient." + parameter.name, std::as_writable_bytes(std::span(gradient)));
  CHECK(std::equal(gradient.begin(), gradient.end(),
                   parameter.tensor.grad().values<double>().begin()));
  CHECK(file.entry("parameter." + parameter.name).type == StoredType::f64);
}

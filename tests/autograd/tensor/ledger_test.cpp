// The ledger: bytes in use by kind.
#include <doctest/doctest.h>

#include <thread>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/optimizer.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

std::int64_t now(MemoryKind kind) {
  return memory_use(kind).current;
}

}  // namespace

TEST_CASE("memory counts as activations unless a scope or set_kind changes it") {
  const auto before = now(MemoryKind::activations);
  const Tensor plain = Tensor::zeros({100});
  CHECK(now(MemoryKind::activations) == before + 400);
  {
    const MemoryScope outer(MemoryKind::communication);
    const auto communication = now(MemoryKind::communication);
    const Tensor buffer = Tensor::zeros({10});
    {
      const MemoryScope inner(MemoryKind::gradients);
      const auto gradients = now(MemoryKind::gradients);
      const Tensor gradient = Tensor::zeros({10});
      CHECK(now(MemoryKind::gradients) == gradients + 40);
    }
    const Tensor more = Tensor::zeros({10});
    CHECK(now(MemoryKind::communication) == communication + 80);
  }
  CHECK(now(MemoryKind::activations) == before + 400);
}

TEST_CASE("parameters, gradients and optimizer state are counted as their kinds") {
  const auto parameters = now(MemoryKind::parameters), gradients = now(MemoryKind::gradients),
             state = now(MemoryKind::optimizer_state), activations = now(MemoryKind::activations),
             all = memory_use().current;
  {
    Linear layer(10, 20);  // 220 elements
    CHECK(now(MemoryKind::parameters) == parameters + 4 * 220);
    AdamW optimizer({{layer.named_parameters(), 0.1, 0}});
    CHECK(now(MemoryKind::optimizer_state) == state + 8 * 220 + 2 * 4);
    backward(sum(layer.forward(Tensor::full({3, 10}, 1))));
    CHECK(now(MemoryKind::gradients) == gradients + 4 * 220);
    CHECK(now(MemoryKind::activations) == activations);
    CHECK(memory_use().current == all + (4 + 8 + 4) * 220 + 8);
    optimizer.zero_grad();
    CHECK(now(MemoryKind::gradients) == gradients);
  }
  CHECK(memory_use().current == all);
  CHECK(now(MemoryKind::parameters) == parameters);
}

TEST_CASE("each kind has its own peak") {
  reset_peak_memory();
  const auto before = memory_use(MemoryKind::communication);
  CHECK(before.peak == before.current);
  {
    const MemoryScope scope(MemoryKind::communication);
    const Tensor buffer = Tensor::zeros({1000});
    buffer.storage()->drop();
    CHECK(now(MemoryKind::communication) == before.current);
    buffer.storage()->restore();
  }
  CHECK(memory_use(MemoryKind::communication).peak == before.current + 4000);
  CHECK(now(MemoryKind::communication) == before.current);
  reset_peak_memory();
  CHECK(memory_use(MemoryKind::communication).peak == before.current);
}

TEST_CASE("a buffer keeps its kind when it is dropped and restored, and set_kind moves it") {
  const Tensor tensor = Tensor::zeros({100});
  const auto gradients = now(MemoryKind::gradients);
  tensor.storage()->drop();
  tensor.storage()->set_kind(MemoryKind::gradients);
  CHECK(now(MemoryKind::gradients) == gradients);
  tensor.storage()->restore();
  CHECK(now(MemoryKind::gradients) == gradients + 400);
  tensor.storage()->set_kind(MemoryKind::parameters);
  CHECK(now(MemoryKind::gradients) == gradients);
}

TEST_CASE("every thread has its own ledger") {
  const auto before = now(MemoryKind::parameters);
  std::int64_t seen = -1;
  std::thread([&] {
    const Linear layer(4, 4);
    seen = now(MemoryKind::parameters);
  }).join();
  CHECK(seen == 80);
  CHECK(now(MemoryKind::parameters) == before);
  for (const MemoryKind kind : all_memory_kinds) CHECK(std::string(name_of(kind)).size() > 5);
}

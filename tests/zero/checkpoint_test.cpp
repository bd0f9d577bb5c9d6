// Checkpoints of sharded optimizers: any number of ranks writes the state of a single process, and
// reads it.
#include <cmath>

#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

// A step on the same data on all ranks, so that the number of ranks does not matter.
template <class Finish>
void step(ToyNet& net, Optimizer& optimizer, int i, Finish&& finish) {
  optimizer.zero_grad();
  backward(loss_of_rows<double>(net, 4 * i, 4));
  finish();
  optimizer.step();
}

// Two groups, whose order differs from that of registration. State has the order of the groups.
std::vector<ParameterGroup> groups_of(const ToyNet& net) {
  return {{{{"fc2.weight", net.fc2.weight}, {"fc1.weight", net.fc1.weight}}, 0.01, 0.1},
          {{{"fc1.bias", net.fc1.bias}, {"fc2.bias", net.fc2.bias}}, 0.01, 0}};
}

std::vector<NamedTensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> all;
  for (const auto& [name, tensor] : tensors) all.push_back({name, tensor.clone()});
  return all;
}

void must_be_the_same(const std::vector<NamedTensor>& seen,
                      const std::vector<NamedTensor>& expected) {
  require(seen.size() == expected.size(), "{} tensors instead of {}", seen.size(), expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    require(
        seen[i].name == expected[i].name && seen[i].tensor.shape() == expected[i].tensor.shape(),
        "{} instead of {}", seen[i].name, expected[i].name);
    if (seen[i].tensor.dtype() == DType::int32) {
      require(seen[i].tensor.item() == expected[i].tensor.item(), "{} is {} instead of {}",
              seen[i].name, seen[i].tensor.item(), expected[i].tensor.item());
      continue;
    }
    const auto a = seen[i].tensor.values<double>(), b = expected[i].tensor.values<double>();
    for (std::size_t k = 0; k < a.size(); ++k)
      require(std::abs(a[k] - b[k]) < 1e-12, "{}[{}] is {} instead of {}", seen[i].name, k, a[k],
              b[k]);
  }
}

// A single process: its state after two steps, and its parameters after four.
struct Alone {
  std::vector<NamedTensor> saved_parameters, saved_state, final_parameters;
  Alone() {
    ToyNet net(0, DType::fp64);
    AdamW optimizer(groups_of(net));
    for (int i = 0; i < 2; ++i) step(net, optimizer, i, [] {});
    saved_parameters = copies(net.named_parameters()), saved_state = copies(optimizer.state());
    for (int i = 2; i < 4; ++i) step(net, optimizer, i, [] {});
    final_parameters = copies(net.named_parameters());
  }
};

template <class Stage>
void state_is_saved_and_loaded() {
  const Alone alone;
  for (const int size : {1, 2, 3, 6})
    on_every_transport(size, [&](ProcessGroup& group) {
      {  // Save.
        ToyNet net(0, DType::fp64);
        Stage stage(net, group);
        const auto optimizer = stage.make_optimizer(groups_of(net), make_adamw);
        for (int i = 0; i < 2; ++i) step(net, *optimizer, i, [&] { stage.finish(); });
        std::vector<NamedTensor> seen;
        optimizer->visit_state([&](const NamedTensor& each) {
          seen.push_back({each.name, each.tensor.clone()});
        });
        require((group.rank() == 0) != seen.empty(), "rank {} sees {} tensors", group.rank(),
                seen.size());
        if (group.rank() == 0) must_be_the_same(seen, alone.saved_state);
      }
      // Load, into a model with other parameters.
      ToyNet net(5, DType::fp64);
      for (const auto& [name, parameter] : net.named_parameters())
        for (const auto& saved : alone.saved_parameters)
          if (saved.name == name) parameter.copy_(saved.tensor);
      Stage stage(net, group);
      const auto optimizer = stage.make_optimizer(groups_of(net), make_adamw);
      std::size_t asked = 0;
      optimizer->fill_state([&](const NamedTensor& whole) {
        require(whole.name == alone.saved_state[asked].name, "it asks for {} instead of {}",
                whole.name, alone.saved_state[asked].name);
        whole.tensor.copy_(alone.saved_state[asked++].tensor);
      });
      for (int i = 2; i < 4; ++i) step(net, *optimizer, i, [&] { stage.finish(); });
      std::vector<NamedTensor> seen;
      stage.visit_parameters([&](const NamedTensor& each) {
        seen.push_back({each.name, each.tensor.clone()});
      });
      if (group.rank() == 0) must_be_the_same(seen, alone.final_parameters);
    });
}

template <class Stage>
void norm_is_that_of_all_ranks() {
  ToyNet alone(0, DType::fp64);
  backward(loss_of_rows<double>(alone, 0, 12));
  const double expected = grad_norm_squared(alone.parameters());
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      ToyNet net(0, DType::fp64);
      Stage stage(net, group);
      const auto optimizer =
          stage.make_optimizer({{ddp::trained_parameters(net), 0.01, 0}}, make_sgd);
      const std::int64_t share = 12 / group.size();
      backward(loss_of_rows<double>(net, group.rank() * share, share));
      stage.finish();
      const double seen = optimizer->grad_norm_squared();
      require(std::abs(seen - expected) < 1e-12 * expected,
              "the sum of the squares is {} instead of {}", seen, expected);
    });
}

}  // namespace

TEST_CASE("the state of a sharded optimizer is saved and loaded whole") {
  state_is_saved_and_loaded<WithOwners<ddp::Bucketed>>();
}
TEST_CASE("sharded state is saved and loaded whole") {
  state_is_saved_and_loaded<StateInBuckets>();
}
TEST_CASE("state with sharded gradients is saved and loaded whole") {
  state_is_saved_and_loaded<GradientsInBuckets>();
}
TEST_CASE("state with sharded parameters is saved and loaded whole") {
  state_is_saved_and_loaded<ParametersByLayer>();
}

TEST_CASE("the norm of sharded gradients is that of the whole model") {
  norm_is_that_of_all_ranks<WithOwners<ddp::Bucketed>>();
  norm_is_that_of_all_ranks<StateInBuckets>();
  norm_is_that_of_all_ranks<GradientsInBuckets>();
  norm_is_that_of_all_ranks<ParametersByLayer>();
}

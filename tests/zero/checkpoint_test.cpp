// The state of a sharded optimizer, whole: what a single process has, whoever holds it; and given
// out again to any number of ranks.
#include <cmath>

#include "autograd/optim/adamw.hpp"
#include "autograd/optim/clip.hpp"
#include "tests/zero/stages.hpp"
#include "zero/optimizer.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups));
}

// A step on the same data for all, which any number of ranks takes alike.
template <class Finish>
void step(ToyNet& net, Optimizer& optimizer, Finish&& finish, int i) {
  optimizer.zero_grad(false);
  backward(
      mse_loss(net.forward(rows_of<double>(0, 4 * i, 4, 10)), rows_of<double>(1, 4 * i, 4, 5)));
  finish();
  optimizer.step();
}

// In two groups, in another order than the parameters are registered in: the order of state is that
// of the groups.
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
                      const std::vector<NamedTensor>& wanted) {
  require(seen.size() == wanted.size(), "{} tensors instead of {}", seen.size(), wanted.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    require(seen[i].name == wanted[i].name && seen[i].tensor.shape() == wanted[i].tensor.shape(),
            "{} instead of {}", seen[i].name, wanted[i].name);
    if (seen[i].tensor.dtype() == DType::int32) {
      require(seen[i].tensor.item() == wanted[i].tensor.item(), "{} is {}", seen[i].name,
              seen[i].tensor.item());
      continue;
    }
    const auto a = seen[i].tensor.values<double>(), b = wanted[i].tensor.values<double>();
    for (std::size_t k = 0; k < a.size(); ++k)
      require(std::abs(a[k] - b[k]) < 1e-12, "{}[{}] is {} instead of {}", seen[i].name, k, a[k],
              b[k]);
  }
}

// One process: the state after two steps, and the parameters after four.
struct Alone {
  std::vector<NamedTensor> parameters_then, state_then, parameters_in_the_end;
  Alone() {
    ToyNet net(0, DType::fp64);
    AdamW optimizer(groups_of(net));
    for (int i = 0; i < 2; ++i)
      step(
          net, optimizer, [] {}, i);
    parameters_then = copies(net.named_parameters()), state_then = copies(optimizer.state());
    for (int i = 2; i < 4; ++i)
      step(
          net, optimizer, [] {}, i);
    parameters_in_the_end = copies(net.named_parameters());
  }
};

// The first form behind the interface of the others.
struct OwnerStrategy {
  OwnerStrategy(Module& its_net, ProcessGroup& its_group)
      : group(its_group), net(its_net), ddp(its_net, its_group) {}
  void finish() { ddp.finish(); }
  std::unique_ptr<zero::PartitionedOptimizer> make_optimizer(
      std::vector<ParameterGroup> groups, const zero::PartitionedOptimizer::Make& make) {
    return std::make_unique<zero::ShardedOptimizer>(std::move(groups), group, make);
  }
  void visit_parameters(const zero::SeeTensor& see) const {
    for (const auto& each : net.named_parameters()) see(each);
  }
  ProcessGroup& group;
  Module& net;
  ddp::Bucketed ddp;
};

template <class Stage>
void state_is_saved_and_loaded() {
  const Alone alone;
  for (const int size : {1, 2, 3, 6})
    on_every_transport(size, [&](ProcessGroup& group) {
      {  // saved
        ToyNet net(0, DType::fp64);
        Stage stage(net, group);
        const auto optimizer = stage.make_optimizer(groups_of(net), make_adamw);
        for (int i = 0; i < 2; ++i)
          step(
              net, *optimizer, [&] { stage.finish(); }, i);
        std::vector<NamedTensor> seen;
        optimizer->visit_state([&](const NamedTensor& each) {
          seen.push_back({each.name, each.tensor.clone()});
        });
        require((group.rank() == 0) != seen.empty(), "rank {} sees {} tensors", group.rank(),
                seen.size());
        if (group.rank() == 0) must_be_the_same(seen, alone.state_then);
      }
      // loaded, by ranks that have never seen it
      ToyNet net(5, DType::fp64);
      for (const auto& [name, parameter] : net.named_parameters())
        for (const auto& saved : alone.parameters_then)
          if (saved.name == name) parameter.copy_(saved.tensor);
      Stage stage(net, group);
      const auto optimizer = stage.make_optimizer(groups_of(net), make_adamw);
      std::size_t asked = 0;
      optimizer->fill_state([&](const NamedTensor& whole) {
        require(whole.name == alone.state_then[asked].name, "asked for {} in place of {}",
                whole.name, alone.state_then[asked].name);
        whole.tensor.copy_(alone.state_then[asked++].tensor);
      });
      for (int i = 2; i < 4; ++i)
        step(
            net, *optimizer, [&] { stage.finish(); }, i);
      std::vector<NamedTensor> seen;
      stage.visit_parameters([&](const NamedTensor& each) {
        seen.push_back({each.name, each.tensor.clone()});
      });
      if (group.rank() == 0) must_be_the_same(seen, alone.parameters_in_the_end);
    });
}

template <class Stage>
void norm_is_global() {
  ToyNet alone(0, DType::fp64);
  backward(mse_loss(alone.forward(rows_of<double>(0, 0, 12, 10)), rows_of<double>(1, 0, 12, 5)));
  const double wanted = grad_norm_squared(alone.parameters());
  for (const int size : {2, 3, 4})
    on_every_transport(size, [&](ProcessGroup& group) {
      ToyNet net(0, DType::fp64);
      Stage stage(net, group);
      const auto optimizer = stage.make_optimizer({{trained(net), 0.01, 0}}, make_sgd);
      const std::int64_t share = 12 / group.size(), first = group.rank() * share;
      backward(mse_loss(net.forward(rows_of<double>(0, first, share, 10)),
                        rows_of<double>(1, first, share, 5)));
      stage.finish();
      const double seen = optimizer->grad_norm_squared();
      require(std::abs(seen - wanted) < 1e-12 * wanted, "the squares are {} instead of {}", seen,
              wanted);
    });
}

}  // namespace

TEST_CASE("state with one owner for each parameter is saved and loaded whole") {
  state_is_saved_and_loaded<OwnerStrategy>();
}
TEST_CASE("sharded state is saved and loaded whole") {
  state_is_saved_and_loaded<StateInBuckets>();
}
TEST_CASE("state beside sharded gradients is saved and loaded whole") {
  state_is_saved_and_loaded<GradientsInBuckets>();
}
TEST_CASE("state beside sharded parameters is saved and loaded whole") {
  state_is_saved_and_loaded<ParametersByLayer>();
}

TEST_CASE("the norm of sharded gradients is that of all") {
  norm_is_global<OwnerStrategy>();
  norm_is_global<StateInBuckets>();
  norm_is_global<GradientsInBuckets>();
  norm_is_global<ParametersByLayer>();
}

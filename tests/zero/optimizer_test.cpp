// Sharded optimizer state against an optimizer on a single process.
#include "zero/optimizer.hpp"

#include <numeric>

#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "ddp/bucketed.hpp"
#include "ddp/flat.hpp"
#include "ddp/naive.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/ddp/toy_nets.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using ringside::collectives::ProcessGroup;
using ringside::zero::ShardedOptimizer;

namespace {

std::unique_ptr<Optimizer> make_momentum(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups), SgdOptions{.momentum = 0.9});
}

std::unique_ptr<Optimizer> make_adamw(std::vector<ParameterGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups));
}

template <class T, class Strategy>
void agrees_with_single_process(const MakeNet& make, const MakeOptimizer& make_optimizer,
                                double tolerance) {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const std::int64_t batch = 100 / size * size, share = batch / size;
    const auto alone = make(0, dtype_of<T>());
    const History wanted = train<T>(
        *alone, 0, batch, [] {}, make_optimizer);
    on_every_transport(size, [&](ProcessGroup& group) {
      const auto net = make(static_cast<std::uint64_t>(group.rank()), dtype_of<T>());
      Strategy strategy(*net, group);
      const auto sharded = [&](std::vector<ParameterGroup> groups) -> std::unique_ptr<Optimizer> {
        return std::make_unique<ShardedOptimizer>(std::move(groups), group, make_optimizer);
      };
      must_agree<T>(train<T>(
                        *net, group.rank() * share, share, [&] { strategy.finish(); }, sharded),
                    wanted, tolerance);
    });
  }
}

std::int64_t elements_in(const std::vector<NamedTensor>& tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::int64_t{0},
      [](std::int64_t sum, const NamedTensor& each) {
        return sum + (each.tensor.dtype() == DType::int32 ? 0 : each.tensor.elements());
      });
}

const MakeNet toy = [](std::uint64_t seed, DType dtype) {
  return std::make_unique<ToyNet>(seed, dtype);
};
const MakeNet tied = [](std::uint64_t seed, DType dtype) {
  return std::make_unique<TiedNet>(seed, dtype);
};
const MakeNet frozen = [](std::uint64_t seed, DType dtype) {
  return std::make_unique<FrozenAndUnusedNet>(seed, dtype);
};

}  // namespace

TEST_CASE("a sharded optimizer makes the single process's parameters") {
  for (const MakeNet& make : {toy, tied, frozen}) {
    agrees_with_single_process<double, ddp::Naive>(make, make_sgd, 1e-12);
    agrees_with_single_process<float, ddp::Flat>(make, make_momentum, 1e-5);
  }
  agrees_with_single_process<double, ddp::Bucketed>(toy, make_adamw, 1e-9);
}

TEST_CASE("each rank keeps its share of the state and all of it is kept once") {
  for (const int size : {2, 3, 4, 6})  // of six ranks two have nothing: there are four parameters
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet net(0, DType::fp32);
      ShardedOptimizer optimizer({{net.named_parameters(), 0.01, 0}}, group, make_adamw);
      const std::int64_t mine = elements_in(optimizer.state());
      std::int64_t all = mine, most = mine;
      group.all_reduce(std::span(&all, 1));
      group.all_reduce(std::span(&most, 1), collectives::ReduceOp::max);
      require(all == 2 * (200 + 20 + 100 + 5), "all ranks together keep {} numbers", all);
      require(most == 2 * 200, "one rank keeps {}",
              most);  // fc1.weight, 200 of the 325, is a share by itself
      if (group.size() == 6)
        require((mine == 0) == (group.rank() >= 4), "rank {} keeps {}", group.rank(), mine);
    });
}

TEST_CASE("groups have their own rates and can be added later") {
  const auto run =
      [](const std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>& make) {
        ToyNet net(0, DType::fp64);
        const auto optimizer = make(
            {{{{"fc1.weight", net.fc1.weight}}, 0.1, 0.5}, {{{"fc1.bias", net.fc1.bias}}, 0.2, 0}});
        const Tensor x = rows_of<double>(0, 0, 10, 10), y = rows_of<double>(1, 0, 10, 5);
        for (int step = 0; step < 4; ++step) {
          if (step == 2)
            optimizer->add_group(
                {{{"fc2.weight", net.fc2.weight}, {"fc2.bias", net.fc2.bias}}, 0.3, 0.1});
          if (step == 3) optimizer->groups()[1].learning_rate = 0.05;
          optimizer->zero_grad();
          net.zero_grad();
          backward(mse_loss(net.forward(x), y));
          optimizer->step();
        }
        return state_of<double>(net);
      };
  const auto wanted = run(make_adamw);
  for (const int size : {2, 3, 5})
    on_every_transport(size, [&](ProcessGroup& group) {
      const auto seen = run([&](std::vector<ParameterGroup> groups) -> std::unique_ptr<Optimizer> {
        return std::make_unique<ShardedOptimizer>(std::move(groups), group, make_adamw);
      });
      for (std::size_t i = 0; i < seen.size(); ++i) {
        const auto a = seen[i].tensor.values<double>(), b = wanted[i].tensor.values<double>();
        for (std::size_t k = 0; k < a.size(); ++k)
          require(a[k] == b[k], "{}[{}] is {} instead of {}", seen[i].name, k, a[k], b[k]);
      }
    });
}

TEST_CASE("after a step every rank has what the owner made") {
  on_every_transport(3, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    ShardedOptimizer optimizer({{net.named_parameters(), 1, 0}}, group, make_sgd);
    const auto before = net.fc2.weight.clone();
    // A gradient that is not averaged: only the owner's may count.
    for (const auto& [name, parameter] : net.named_parameters())
      parameter.set_grad(Tensor::full(parameter.shape(), group.rank() + 1, DType::fp32));
    const auto moved = [&] {
      return before.values<float>()[0] - net.fc2.weight.values<float>()[0];
    };
    const auto by_owner = static_cast<float>(optimizer.owner(0, 2) + 1);
    optimizer.step();
    require(std::abs(moved() - by_owner) < 1e-5f, "fc2.weight moved by {}", moved());
    optimizer.set_gradient_scale(0.5);
    optimizer.step();
    require(std::abs(moved() - 1.5f * by_owner) < 1e-5f, "with a scale fc2.weight moved by {}",
            moved());
    optimizer.step();
    require(std::abs(moved() - 2.5f * by_owner) < 1e-5f, "after the scale fc2.weight moved by {}",
            moved());
    optimizer.zero_grad();
    for (const auto& [name, parameter] : net.named_parameters())
      require(!parameter.grad().defined(), "{} kept its gradient", name);
  });
}

TEST_CASE("a step sends each parameter once beside the gradients") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet net(0, DType::fp32);
      ShardedOptimizer optimizer({{net.named_parameters(), 0.01, 0}}, group, make_sgd);
      for (const auto& [name, parameter] : net.named_parameters())
        parameter.set_grad(Tensor::zeros(parameter.shape(), DType::fp32));
      const auto before = group.traffic().payload_bytes_sent;
      optimizer.step();
      std::int64_t sent = static_cast<std::int64_t>(group.traffic().payload_bytes_sent - before);
      group.all_reduce(std::span(&sent, 1));
      // A broadcast moves p-1 copies, whoever sends them.
      require(sent == (group.size() - 1) * 4 * (200 + 20 + 100 + 5),
              "all ranks together sent {} bytes", sent);
    });
}

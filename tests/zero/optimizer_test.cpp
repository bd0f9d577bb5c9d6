// ZeRO stage 1, first version: who owns what, groups of parameters, and bytes on the wire.
#include "zero/zero1_broadcast.hpp"

#include <numeric>

#include "tests/parallel/single_process.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;
using ringside::zero::Zero1Broadcast;

namespace {

// Without counts of steps.
std::int64_t elements_in(const std::vector<NamedTensor>& tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::int64_t{0},
      [](std::int64_t sum, const NamedTensor& each) {
        return sum + (each.tensor.dtype() == DType::int32 ? 0 : each.tensor.elements());
      });
}

}  // namespace

TEST_CASE("each rank keeps the state of what it owns, and all of it exists once") {
  // There are four parameters, so two of six ranks own nothing.
  for (const int size : {2, 3, 4, 6})
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet net(0, DType::fp32);
      Zero1Broadcast optimizer({{net.named_parameters(), 0.01, 0}}, group, make_adamw);
      const std::int64_t mine = elements_in(optimizer.state());
      std::int64_t all = mine, most = mine;
      group.all_reduce(std::span(&all, 1));
      group.all_reduce(std::span(&most, 1), collectives::ReduceOp::max);
      require(all == 2 * (200 + 20 + 100 + 5), "all ranks together keep {} numbers", all);
      // The owner of fc1.weight, 200 of the 325 elements, owns nothing else.
      require(most == 2 * 200, "one rank keeps {} numbers", most);
      if (group.size() == 6)
        require((mine == 0) == (group.rank() >= 4), "rank {} keeps {} numbers", group.rank(), mine);
    });
}

TEST_CASE("groups have their own rates and can be added later") {
  const auto run = [](const MakeOptimizer& make) {
    ToyNet net(0, DType::fp64);
    const auto optimizer = make(
        {{{{"fc1.weight", net.fc1.weight}}, 0.1, 0.5}, {{{"fc1.bias", net.fc1.bias}}, 0.2, 0}});
    for (int step = 0; step < 4; ++step) {
      if (step == 2)
        optimizer->add_group(
            {{{"fc2.weight", net.fc2.weight}, {"fc2.bias", net.fc2.bias}}, 0.3, 0.1});
      if (step == 3) optimizer->groups()[1].learning_rate = 0.05;
      optimizer->zero_grad();
      net.zero_grad();
      backward(loss_of_rows<double>(net, 0, 10));
      optimizer->step();
    }
    return state_of(WholeTensors(net));
  };
  const Tensors expected = run(make_adamw);
  for (const int size : {2, 3, 5})
    on_every_transport(size, [&](ProcessGroup& group) {
      const Tensors seen =
          run([&](std::vector<ParameterGroup> groups) -> std::unique_ptr<Optimizer> {
            return std::make_unique<Zero1Broadcast>(std::move(groups), group, make_adamw);
          });
      must_be_equal<double>(seen, expected, 0);
    });
}

TEST_CASE("after a step every rank has the parameters of their owners") {
  on_every_transport(3, [](ProcessGroup& group) {
    ToyNet net(0, DType::fp32);
    Zero1Broadcast optimizer({{net.named_parameters(), 1, 0}}, group, make_sgd);
    const auto before = net.fc2.weight.clone();
    // Gradients that differ between ranks: only that of the owner may count.
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

TEST_CASE("a step sends each parameter once") {
  for (const int size : {2, 3, 4})
    on_every_transport(size, [](ProcessGroup& group) {
      ToyNet net(0, DType::fp32);
      Zero1Broadcast optimizer({{net.named_parameters(), 0.01, 0}}, group, make_sgd);
      for (const auto& [name, parameter] : net.named_parameters())
        parameter.set_grad(Tensor::zeros(parameter.shape(), DType::fp32));
      const auto before = group.traffic().payload_bytes_sent;
      optimizer.step();
      std::int64_t sent = static_cast<std::int64_t>(group.traffic().payload_bytes_sent - before);
      group.all_reduce(std::span(&sent, 1));
      // A broadcast sends p-1 copies, whichever ranks send them.
      require(sent == (group.size() - 1) * 4 * (200 + 20 + 100 + 5),
              "all ranks together sent {} bytes", sent);
    });
}

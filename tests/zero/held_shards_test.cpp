// Shards and copies of a neighbour's: whichever rank is lost, and whoever has made the last update,
// the others put the whole model together.
#include "zero/held_shards.hpp"

#include <cmath>

#include "autograd/optim/adamw.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

constexpr std::int64_t rows_of_step = 12;  // of a step, over all ranks

std::vector<ParameterGroup> two_groups(const ToyNet& net) {
  return {{{{"fc2.weight", net.fc2.weight}, {"fc1.weight", net.fc1.weight}}, 0.01, 0.1},
          {{{"fc1.bias", net.fc1.bias}, {"fc2.bias", net.fc2.bias}}, 0.02, 0}};
}

// Parameters and state of a single process after so many steps.
std::vector<NamedTensor> after(std::int64_t steps) {
  ToyNet net(0, DType::fp64);
  AdamW optimizer(two_groups(net));
  for (std::int64_t i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    backward(loss_of_rows<double>(net, rows_of_step * i, rows_of_step));
    optimizer.set_gradient_scale(0.5);
    optimizer.step();
  }
  std::vector<NamedTensor> all = net.named_parameters();
  for (const NamedTensor& each : optimizer.state()) all.push_back(each);
  return all;
}

void require_equal(const NamedTensor& seen, const NamedTensor& expected) {
  for (std::int64_t i = 0; i < expected.tensor.elements(); ++i) {
    const bool is_count = expected.tensor.dtype() == DType::int32;
    const auto at = [&](const Tensor& tensor) {
      return is_count ? static_cast<double>(tensor.values<std::int32_t>()[i])
                      : tensor.values<double>()[i];
    };
    require(std::abs(at(seen.tensor) - at(expected.tensor)) < 1e-9, "{}[{}] is {}, expected {}",
            expected.name, i, at(seen.tensor), at(expected.tensor));
  }
}

// Three steps; the third is not finished by all, as if a rank had been lost in it. Those in `ahead`
// have made its update. What this rank then holds.
template <class Stage>
zero::HeldShards train(ProcessGroup& group, bool is_ahead) {
  ToyNet net(0, DType::fp64);
  Stage stage(net, group);
  const auto optimizer = stage.make_optimizer(two_groups(net), make_adamw);
  optimizer->keep_copy(0, 7);
  const std::int64_t share = rows_of_step / group.size();
  for (std::int64_t i = 0; i < 3; ++i) {
    optimizer->zero_grad();
    backward(loss_of_rows<double>(net, rows_of_step * i + group.rank() * share, share));
    stage.finish();
    optimizer->set_gradient_scale(0.5);
    optimizer->send_gradients();
    group.barrier();
    if (i < 2 || is_ahead) optimizer->step();
  }
  return optimizer->release();
}

template <class Stage>
void others_hold_what_a_lost_rank_held(bool updates_alone) {
  const std::vector<NamedTensor> second = after(2), third = after(3);
  for (const int size : {2, 3, 4})
    for (int lost = 0; lost < size; ++lost)
      for (const bool some_are_ahead : {false, true}) {
        if (some_are_ahead && !updates_alone) continue;
        CAPTURE(size);
        CAPTURE(lost);
        CAPTURE(some_are_ahead);
        on_every_transport(size, [&](ProcessGroup& group) {
          // The right neighbour of the lost rank is not, and must update the copy itself.
          const int right = (lost + 1) % size;
          zero::HeldShards held =
              train<Stage>(group, some_are_ahead && (group.rank() != right || size == 2));
          ProcessGroup rest = group.split(group.rank() == lost ? 1 : 0);
          if (group.rank() == lost) return;
          const std::int64_t steps = held.meet(rest);
          require(steps == (some_are_ahead ? 3 : 2), "they go on after step {}", steps);
          for (const NamedTensor& expected : some_are_ahead ? third : second) {
            const NamedTensor whole{
                expected.name, Tensor::empty(expected.tensor.shape(), expected.tensor.dtype())};
            held.fill(whole, rest);
            require_equal(whole, expected);
          }
        });
      }
}

}  // namespace

TEST_CASE("whichever rank of ZeRO is lost the others hold the model and the optimizer's state") {
  others_hold_what_a_lost_rank_held<zero::Zero1>(false);
  others_hold_what_a_lost_rank_held<zero::Zero2>(false);
  others_hold_what_a_lost_rank_held<zero::Zero3>(true);
}

TEST_CASE("two ranks of ZeRO that hold the same shard must not be lost at once") {
  for (const int second : {2, 3})
    on_every_transport(4, [&](ProcessGroup& group) {
      zero::HeldShards held = train<zero::Zero3>(group, false);
      const bool is_lost = group.rank() == 1 || group.rank() == second;
      ProcessGroup rest = group.split(is_lost ? 1 : 0);
      if (is_lost) return;
      std::string text;
      try {
        held.meet(rest);
      } catch (const Error& error) {
        text = error.what();
      }
      require(text == (second == 3 ? ""
                                   : "2 of 4 ranks are left, and they do not hold all shards: two "
                                     "ranks that hold the same shard are lost at once; go on from "
                                     "the last checkpoint, with --resume"),
              "{}", text);
    });
}

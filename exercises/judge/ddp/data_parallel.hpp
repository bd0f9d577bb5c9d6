// What the judges of data parallelism share: nets, data and a training, with the student's method
// and by a single process.
//
// Every rank has other rows and other first weights, and trains by SGD for 4 steps in fp64: Adam
// would hide a wrong scale, and some mistakes show only in the third step.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/nn/layers.hpp"
#include "exercises/judge/ddp/data_parallel_method.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// What is special about a net.
enum class NetKind { plain, tied, frozen, frozen_and_unused, sometimes };
inline constexpr NetKind all_net_kinds[] = {NetKind::plain, NetKind::tied,
                                            NetKind::frozen_and_unused, NetKind::sometimes};
// CS336's tests have a tied weight and a frozen parameter; that each trained parameter gets a
// gradient in each step is true of all models that it trains.
inline constexpr NetKind cs336_net_kinds[] = {NetKind::plain, NetKind::tied, NetKind::frozen};
inline constexpr NetKind other_net_kinds[] = {NetKind::frozen_and_unused, NetKind::sometimes};
std::string name_of(NetKind kind);  // "tied"

// Which nets the ranks trained, and the bytes of a number in them: 4 only in torch. The judge
// computes in fp64, and allows for their rounding.
struct TrainedNets {
  std::span<const NetKind> kinds = all_net_kinds;
  std::uint64_t number_bytes = 8;
};

// Four layers, whose widths depend on the seed. `tied`: second and third share a weight.
// `frozen`: one bias, which the seed chooses, is frozen. `frozen_and_unused`: besides, forward does
// not use the layer `unused`. `sometimes`: forward uses `third` every second time. The first
// weights and the buffer `shift` depend on `rank`.
class JudgeNet final : public autograd::Module {
 public:
  JudgeNet(NetKind kind, std::uint64_t seed, int rank);
  autograd::Tensor forward(const autograd::Tensor& x) const;
  // The loss over rows first .. first + rows of the data set of `seed`.
  autograd::Tensor loss(std::uint64_t seed, std::int64_t first, std::int64_t rows) const;

 private:
  NetKind kind_;
  autograd::Linear first_, second_, third_, unused_, out_;
  autograd::Tensor shift_;
  mutable int calls_ = 0;
};

// Three layers 0, 1, 2 of 8 x 8 with a bias, for the order of events.
class LayeredNet final : public autograd::Module {
 public:
  static constexpr int depth = 3;
  explicit LayeredNet(std::uint64_t seed, autograd::DType dtype = autograd::DType::fp64);
  autograd::Tensor loss() const;
  std::vector<std::unique_ptr<autograd::Linear>> layers;
};

// The student's method. A Student<MakeDataParallel> is one.
using Method = std::function<MakeDataParallel>;

struct TrainingPlan {
  int micro_batches = 1;      // all but the last are under no_sync()
  bool zero_in_turn = false;  // gradients are freed in steps 1 and 3 only, and loans end
  TrainedNets nets = {};      // of the judge; the ranks train every kind
};

// Trains every kind of net: {"tied": {"start": tensors, "steps": [{"gradients": tensors,
// "parameters": tensors}]}}, where tensors are {name: numbers}; "messages" counts what was sent
// under no_sync().
Json train_all_kinds(World& world, const Method& student, const TrainingPlan& plan = {});
// Against a single process that has the rows of all ranks.
Verdict judge_training(const Run& run, const TrainingPlan& plan = {});
// Only the weights after the last step: how CS336's tests judge. It shows what they let pass.
Verdict judge_last_weights(const Run& run);
// Only the state before the first step: parameters and buffers are those of rank 0.
Verdict judge_start(const Run& run, const TrainedNets& nets = {});

// The calls of 3 steps of every kind of net: {"tied": [{"calls": [{"call", "bytes"}], "sent"}]}.
Json calls_of_all_kinds(World& world, const Method& student);
// An all-reduce for each gradient, in any order, or one for all of them; and each rank sends the
// bytes of the ring. Labels do not matter, nor whether the call divides.
Verdict judge_calls_of_all_kinds(const Run& run, bool one_call, const TrainedNets& nets = {});

// The bytes that rank `rank` sends in a ring all-reduce of `bytes` of such numbers.
std::uint64_t ring_bytes(std::uint64_t bytes, int ranks, int rank, std::uint64_t number_bytes = 8);

// The text of the error when rank 0 lacks the gradient of 1.bias in a LayeredNet; "" without one.
Json error_when_a_gradient_is_missing(World& world, const Method& student);
Verdict judge_missing_gradient(const Run& run);

}  // namespace ringside::exercises

// `./exercise train 44`: the student's PowerSGD as a strategy of ringside train.
#include "power_sgd.cpp"
#include "training/strategies/group_strategy.hpp"

using namespace ringside;

namespace {
// GroupStrategy would take the number of columns for the size of a bucket.
struct PowerSGDOfRank4 : student::ddp::PowerSGD {
  PowerSGDOfRank4(const autograd::Module& model, collectives::ProcessGroup& group)
      : PowerSGD(model, group) {}
};
}  // namespace

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<PowerSGDOfRank4>>;

// A parallel strategy in a shared library, as training/strategies/group_strategy.hpp shows it: the
// mean of each gradient, one call after the other.
#include "parallel/replicate.hpp"
#include "parallel/tensor_collectives.hpp"
#include "training/strategies/group_strategy.hpp"

namespace {

using namespace ringside;

class Mine {
 public:
  Mine(autograd::Module& model, collectives::ProcessGroup& group) : model_(model), group_(group) {
    parallel::replicate(model, group);
  }
  void finish() {
    for (const auto& [name, parameter] : model_.named_parameters())
      parallel::all_reduce_mean(parameter.grad(), group_, name);
  }

 private:
  autograd::Module& model_;
  collectives::ProcessGroup& group_;
};

}  // namespace

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<Mine>>;

// A parallel strategy in a shared library, as training/strategies/group_strategy.hpp shows it: the
// mean of each gradient, one call after the other.
#include "ddp/replicate.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/generators/one_f_one_b.hpp"
#include "training/mesh/mesh_model_ranks.hpp"
#include "training/strategies/group_strategy.hpp"

namespace {

using namespace ringside;

class Mine {
 public:
  Mine(autograd::Module& model, collectives::ProcessGroup& group) : model_(model), group_(group) {
    ddp::replicate(model, group);
  }
  void finish() {
    for (const auto& [name, parameter] : model_.named_parameters())
      ddp::all_reduce_mean(parameter.grad(), group_, name);
  }

 private:
  autograd::Module& model_;
  collectives::ProcessGroup& group_;
};

}  // namespace

extern "C" training::MakeStrategy* const ringside_strategy =
    training::strategy_over<training::GroupStrategy<Mine>>;

namespace {

const training::TensorFunctions functions;  // as ours

std::vector<pipeline_parallel::Action> make(int ranks, int, int micro_batches, int rank) {
  return pipeline_parallel::one_f_one_b(ranks, micro_batches, rank);
}

}  // namespace

extern "C" const training::TensorFunctions* const ringside_tensor_functions = &functions;
extern "C" decltype(pipeline_parallel::Generator::make) const ringside_schedule = make;

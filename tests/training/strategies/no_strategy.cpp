// A shared library without a parallel strategy, whose functions of tensor parallel forget an
// all-reduce, and whose schedule forgets a backward.
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/generators/gpipe.hpp"
#include "training/mesh/mesh_model_ranks.hpp"

using namespace ringside;

namespace {

const training::TensorFunctions functions{.copy_to_group = [](const autograd::Tensor& x,
                                                              collectives::ProcessGroup&,
                                                              std::string_view) { return x; }};

std::vector<pipeline_parallel::Action> make(int ranks, int, int micro_batches, int rank) {
  auto actions = pipeline_parallel::gpipe(ranks, micro_batches, rank);
  actions.pop_back();
  return actions;
}

}  // namespace

extern "C" const training::TensorFunctions* const ringside_tensor_functions = &functions;
extern "C" decltype(pipeline_parallel::Generator::make) const ringside_schedule = make;

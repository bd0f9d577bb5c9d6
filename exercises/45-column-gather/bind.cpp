// Compiled with the student's file each time that it changes.
#include <memory>

#include "column_gather.cpp"
#include "exercises/45-column-gather/interface.hpp"

namespace ringside::exercises {
namespace {

using student::column_gather::Layer;

GatheredLayers made_of(const std::vector<RowsOfLayer>& all) {
  const auto layers = std::make_shared<std::vector<Layer>>(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    (*layers)[i].weight = all[i].weight;
    (*layers)[i].has_gelu = all[i].has_gelu;
  }
  return {[layers](const autograd::Tensor& x, collectives::ProcessGroup& group) {
            return student::column_gather::forward_gathered(*layers, x, group);
          },
          [layers](const autograd::Tensor& dy, collectives::ProcessGroup& group) {
            return student::column_gather::backward_gathered(*layers, dy, group);
          }};
}

[[maybe_unused]] const bool bound = student_layers.bind(made_of);

}  // namespace
}  // namespace ringside::exercises

// Whole tensors from the parts that the ranks of one model hold, one at a time: so a checkpoint is
// the same file on every mesh.
//
//     order of a single process    embed | layer 0 | layer 1 | norm | head
//     rank pp=0,tp=0               rows    rows      .         .      .
//     rank pp=0,tp=1               rows    rows      .         .      .
//     rank pp=1,tp=0               .       .         rows      all    rows
//     rank pp=1,tp=1               .       .         rows      (all)  rows       (all): a copy
//
// Every rank walks its own tensors in its own order, which is a part of the whole order. So no rank
// waits for another in a circle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "collectives/process_group.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::training {

// A parameter or a gradient, or one tensor of a parameter's optimizer state.
struct WholeTensor {
  const transformer::ParameterEntry* entry = nullptr;  // of its parameter
  std::string suffix;                                  // of state: ".exp_avg"; else empty
  autograd::Shape shape;
  autograd::DType dtype = autograd::DType::fp32;
  bool per_element = true;  // divided as the parameter is; otherwise the same on all its ranks

  std::string name() const { return entry->name + suffix; }
  // The elements that a part holds.
  autograd::Region region_in(const transformer::ModelPart& part) const;
  // Whether this part's elements are those that are saved.
  bool is_saved_by(const transformer::ModelPart& part) const;
};

// All of a model, in the order of a single process. `table` must outlive the result.
std::vector<WholeTensor> whole_parameters(const transformer::ParameterTable& table,
                                          autograd::DType dtype);
std::vector<WholeTensor> whole_state(const transformer::ParameterTable& table,
                                     const autograd::Optimizer& optimizer, autograd::DType dtype);

using SeeTensor = ParallelStrategy::SeeTensor;

// `visit` shows a rank's own tensors in its order. On rank 0 of `group`, `see` gets every tensor of
// `order` whole, on the CPU. `parts` are those of the group's ranks. Every rank of the group must
// call it.
void collect_whole(const std::vector<WholeTensor>& order,
                   const std::vector<transformer::ModelPart>& parts,
                   collectives::ProcessGroup& group,
                   const std::function<void(const SeeTensor&)>& visit, const SeeTensor& see);

// The reverse: `fill` writes every tensor of `order` whole, on every rank, and `keep` asks for this
// rank's tensors, in its order. Ranks do not communicate.
void fill_from_whole(const std::vector<WholeTensor>& order, const transformer::ModelPart& part,
                     const std::function<void(const SeeTensor&)>& keep, const SeeTensor& fill);

}  // namespace ringside::training

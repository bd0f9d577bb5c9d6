#include "zero/partitioned.hpp"

#include <algorithm>

#include "autograd/optim/clip.hpp"
#include "base/error.hpp"
#include "parallel/replicate.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;
using autograd::Tensor;

namespace {

std::byte* bytes_at(const Tensor& tensor, std::int64_t element) {
  return tensor.address() + static_cast<std::size_t>(element) * autograd::size_of(tensor.dtype());
}

// Elements of a contiguous tensor, as a row.
Tensor part_of(const Tensor& whole, const Part& part) {
  return Tensor::view_of(whole.storage(), whole.offset() + part.begin, {part.count}, whole.dtype());
}

}  // namespace

Tensor collect(const Tensor& mine, const std::vector<Part>& parts, autograd::Shape shape,
               autograd::DType dtype, collectives::ProcessGroup& group, std::string_view label) {
  const autograd::MemoryScope buffer(autograd::MemoryKind::communication);
  const Tensor whole = group.rank() == 0 ? Tensor::empty(std::move(shape), dtype) : Tensor();
  for (int r = 0; r < group.size(); ++r) {
    const Part& part = parts[static_cast<std::size_t>(r)];
    const auto count = static_cast<std::size_t>(part.count);
    if (count == 0) continue;
    if (r == 0 && group.rank() == 0)
      part_of(whole, part).copy_(mine.reshape({part.count}));
    else if (r == group.rank())
      group.send(mine.to(autograd::Device::cpu).address(), count, ddp::data_type_of(mine), 0,
                 label);
    else if (group.rank() == 0)
      group.recv(bytes_at(whole, part.begin), count, ddp::data_type_of(whole), r, label);
  }
  return whole;
}

PartitionedOptimizer::PartitionedOptimizer(std::vector<ParameterGroup> groups,
                                           collectives::ProcessGroup& group, Make make)
    : Optimizer(std::move(groups), {}, false), group_(group), make_(std::move(make)) {}

void PartitionedOptimizer::share_out_all() {
  for (const ParameterGroup& each : groups()) share_out(each);
}

void PartitionedOptimizer::add_group(ParameterGroup group) {
  Optimizer::add_group(std::move(group));
  share_out(groups().back());
}

void PartitionedOptimizer::share_out(const ParameterGroup& added) {
  ParameterGroup mine = added;
  mine.parameters = share_of(added);
  ++shared_out_;
  if (share_) return share_->add_group(std::move(mine));
  if (mine.parameters.empty()) return;
  std::vector<ParameterGroup> shares(shared_out_ -
                                     1);  // of the groups before, of which this rank has nothing
  shares.push_back(std::move(mine));
  share_ = make_(std::move(shares));
}

void PartitionedOptimizer::step_share() {
  if (share_) {
    for (std::size_t g = 0; g < groups().size(); ++g) {
      share_->groups()[g].learning_rate = groups()[g].learning_rate;
      share_->groups()[g].weight_decay = groups()[g].weight_decay;
    }
    share_->set_gradient_scale(gradient_scale());
    share_->step();
  }
  set_gradient_scale(1);
}

std::vector<NamedTensor> PartitionedOptimizer::state() const {
  return share_ ? share_->state() : std::vector<NamedTensor>{};
}

double PartitionedOptimizer::grad_norm_squared() const {
  std::vector<Tensor> mine;
  if (share_)
    for (const ParameterGroup& group : share_->groups())
      for (const NamedTensor& part : group.parameters) mine.push_back(part.tensor);
  double squares = autograd::grad_norm_squared(mine);
  group_.all_reduce(&squares, &squares, 1, collectives::DataType::fp64, collectives::ReduceOp::sum,
                    "squares of the gradients");
  return squares;
}

// A rank without a share asks an optimizer of one number.
std::vector<autograd::StateEntry> PartitionedOptimizer::state_layout(
    autograd::DType parameter) const {
  if (share_) return share_->state_layout(parameter);
  ParameterGroup group;
  group.parameters.push_back({"", Tensor::zeros({1}, parameter)});
  return make_({group})->state_layout(parameter);
}

void PartitionedOptimizer::visit_state(const SeeTensor& see) const {
  const std::vector<NamedTensor> all = state();
  const auto mine_of = [&](const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const NamedTensor& each) { return each.name == name; });
    return found == all.end() ? Tensor() : found->tensor;
  };
  for (std::size_t g = 0; g < groups().size(); ++g) {
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      const std::vector<Part> of_ranks = parts(g, i);
      std::vector<Part> once(
          of_ranks.size());  // whoever keeps the first number tells what is kept once
      const auto keeper = std::find_if(of_ranks.begin(), of_ranks.end(),
                                       [](const Part& part) { return part.count > 0; });
      if (keeper != of_ranks.end())
        once[static_cast<std::size_t>(keeper - of_ranks.begin())] = {0, 1};
      for (const autograd::StateEntry& entry : state_layout(parameter.tensor.dtype())) {
        const std::string name = parameter.name + "." + entry.name;
        const Tensor whole =
            collect(mine_of(name), entry.per_element ? of_ranks : once,
                    entry.shape_for(parameter.tensor.shape()), entry.dtype, group_, name);
        if (whole.defined()) see({name, whole});
      }
    }
  }
}

void PartitionedOptimizer::fill_state(const FillTensor& fill) {
  const std::vector<NamedTensor> all = state();
  for (std::size_t g = 0; g < groups().size(); ++g) {
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      const Part mine = parts(g, i)[static_cast<std::size_t>(group_.rank())];
      for (const autograd::StateEntry& entry : state_layout(parameter.tensor.dtype())) {
        const std::string name = parameter.name + "." + entry.name;
        const Tensor whole = Tensor::empty(entry.shape_for(parameter.tensor.shape()), entry.dtype);
        fill({name, whole});
        const auto found = std::find_if(all.begin(), all.end(),
                                        [&](const NamedTensor& each) { return each.name == name; });
        if (found == all.end()) continue;
        const Tensor numbers = entry.per_element ? part_of(whole, mine) : whole;
        found->tensor.copy_(numbers.reshape(found->tensor.shape()));
      }
    }
  }
}

}  // namespace ringside::zero

#include "zero/partitioned_optimizer.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "autograd/optim/clip.hpp"
#include "base/error.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::Optimizer;
using autograd::ParameterGroup;
using autograd::StateEntry;
using autograd::Tensor;

namespace {

// Undefined if there is none of this name.
Tensor find(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& each) { return each.name == name; });
  return found == tensors.end() ? Tensor() : found->tensor;
}

// The parameters of an optimizer over shards, in their order.
std::vector<NamedTensor> parameters_of(const Optimizer* optimizer) {
  std::vector<NamedTensor> all;
  if (optimizer)
    for (const ParameterGroup& group : optimizer->groups())
      all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

std::span<std::byte> byte_view(const Tensor& tensor) {
  return {tensor.address(),
          static_cast<std::size_t>(tensor.elements()) * autograd::size_of(tensor.dtype())};
}

// State that is kept once for a parameter is taken from the first rank that has a shard of it.
std::vector<ShardRange> first_keeper_of(const std::vector<ShardRange>& ranges) {
  std::vector<ShardRange> once(ranges.size());
  for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
    if (ranges[rank].count == 0) continue;
    once[rank] = {0, 1};
    break;
  }
  return once;
}

}  // namespace

PartitionedOptimizer::PartitionedOptimizer(std::vector<ParameterGroup> groups,
                                           collectives::ProcessGroup& group, Make make)
    : Optimizer(std::move(groups), {}, false), group_(group), make_(std::move(make)) {}

void PartitionedOptimizer::add_shards_of_all_groups() {
  for (std::size_t g = 0; g < groups().size(); ++g) add_shards(g);
}

void PartitionedOptimizer::add_group(ParameterGroup group) {
  Optimizer::add_group(std::move(group));
  add_shards(groups().size() - 1);
}

void PartitionedOptimizer::add_shards(std::size_t g) {
  ParameterGroup mine = groups()[g];
  mine.parameters = shards_of(groups()[g]);
  if (local_) return local_->add_group(std::move(mine));
  if (mine.parameters.empty()) return;
  // This rank has nothing of the groups before this one.
  std::vector<ParameterGroup> local_groups(g);
  local_groups.push_back(std::move(mine));
  local_ = make_(std::move(local_groups));
}

void PartitionedOptimizer::prepare_update(Optimizer& optimizer) const {
  for (std::size_t g = 0; g < groups().size(); ++g) {
    optimizer.groups()[g].learning_rate = groups()[g].learning_rate;
    optimizer.groups()[g].weight_decay = groups()[g].weight_decay;
  }
  optimizer.set_gradient_scale(gradient_scale());
}

void PartitionedOptimizer::step_shards() {
  for (const auto* optimizer : {&local_, &copy_}) {
    if (!*optimizer) continue;
    prepare_update(**optimizer);
    (*optimizer)->step();
  }
  set_gradient_scale(1);
  ++steps_;
  can_update_ = false;
}

void PartitionedOptimizer::keep_copy(std::int64_t steps, std::int64_t stamp) {
  steps_ = steps;
  if (group_.size() > 1) receive_copy();
  stamp_ = stamp;  // now: if a rank is lost before, this one has no copy
}

void PartitionedOptimizer::receive_copy() {
  const auto left = static_cast<std::size_t>(neighbour(-1));
  const autograd::MemoryScope scope(autograd::MemoryKind::parameters);
  std::vector<ParameterGroup> of_left = groups();
  bool any = false;
  for (std::size_t g = 0; g < of_left.size(); ++g) {
    of_left[g].parameters.clear();
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const auto& [name, parameter] = groups()[g].parameters[i];
      const std::int64_t count = ranges(g, i)[left].count;
      if (count == 0) continue;
      Tensor copy = Tensor::zeros({count}, parameter.dtype());
      copy.set_requires_grad(true).set_grad(Tensor::zeros({count}, parameter.dtype()));
      of_left[g].parameters.push_back({name, copy});
      any = true;
    }
  }
  if (any) copy_ = make_(std::move(of_left));
  std::vector<Tensor> mine, theirs;
  for (const auto& [optimizer, tensors] :
       {std::pair(local_.get(), &mine), std::pair(copy_.get(), &theirs)}) {
    for (const NamedTensor& each : parameters_of(optimizer)) tensors->push_back(each.tensor);
    if (optimizer)
      for (const NamedTensor& each : optimizer->state()) tensors->push_back(each.tensor);
  }
  send_right(mine, theirs, "copy of the shards");
}

void PartitionedOptimizer::send_gradients() {
  std::vector<Tensor> mine, theirs;
  for (const NamedTensor& each : shards()) {
    require(each.tensor.grad().defined(),
            "'{}' has no gradient, so no other rank can hold a copy of what its update needs: "
            "leave out --elastic",
            each.name);
    mine.push_back(each.tensor.grad());
  }
  for (const NamedTensor& each : parameters_of(copy_.get())) theirs.push_back(each.tensor.grad());
  if (group_.size() > 1) send_right(mine, theirs, "gradients of the shards");
  can_update_ = true;
}

// One message to the right and one from the left.
void PartitionedOptimizer::send_right(const std::vector<Tensor>& mine,
                                      const std::vector<Tensor>& of_left, const char* label) {
  const auto size_of = [](const std::vector<Tensor>& tensors) {
    std::size_t bytes = 0;
    for (const Tensor& each : tensors) bytes += byte_view(each).size();
    return bytes;
  };
  std::vector<std::byte> out(size_of(mine)), in(size_of(of_left));
  std::byte* next = out.data();
  for (const Tensor& each : mine) {
    const auto bytes = byte_view(each);
    next = std::copy(bytes.begin(), bytes.end(), next);
  }
  const collectives::ConstBuffer sent(out.data(), out.size(), collectives::DataType::uint8);
  const collectives::Buffer received(in.data(), in.size(), collectives::DataType::uint8);
  // Every second rank receives first, or all would wait for a receiver.
  const bool sends_first = group_.rank() % 2 == 0;
  if (sends_first) group_.send(sent, neighbour(1), label);
  group_.recv(received, neighbour(-1), label);
  if (!sends_first) group_.send(sent, neighbour(1), label);
  const std::byte* from = in.data();
  for (const Tensor& each : of_left) {
    const auto bytes = byte_view(each);
    std::copy_n(from, bytes.size(), bytes.data());
    from += bytes.size();
  }
}

std::vector<Piece> PartitionedOptimizer::pieces(const Optimizer* optimizer, int of_rank) const {
  std::vector<Piece> all;
  if (!optimizer) return all;
  const std::vector<NamedTensor> parameters = parameters_of(optimizer), state = optimizer->state();
  for (std::size_t g = 0; g < groups().size(); ++g)
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      const ShardRange range = ranges(g, i)[static_cast<std::size_t>(of_rank)];
      if (range.count == 0) continue;
      all.push_back({parameter.name, range, find(parameters, parameter.name).detach()});
      for (const StateEntry& entry : state_layout(parameter.tensor.dtype())) {
        const std::string name = parameter.name + "." + entry.name;
        const ShardRange once{0, 1};
        all.push_back({name, entry.per_element ? range : once, find(state, name)});
      }
    }
  return all;
}

HeldShards PartitionedOptimizer::release() {
  for (const auto* optimizer : {&local_, &copy_})
    if (*optimizer) prepare_update(**optimizer);
  HeldShards::Shards own{nullptr, pieces(local_.get(), group_.rank())},
      copy{nullptr, pieces(copy_.get(), neighbour(-1))};
  own.optimizer = std::move(local_);
  copy.optimizer = std::move(copy_);
  return HeldShards(std::move(own), std::move(copy), group_.rank(), group_.size(), steps_,
                    can_update_, std::exchange(stamp_, -1));
}

std::vector<NamedTensor> PartitionedOptimizer::state() const {
  return local_ ? local_->state() : std::vector<NamedTensor>{};
}

std::vector<NamedTensor> PartitionedOptimizer::shards() const {
  return parameters_of(local_.get());
}

double PartitionedOptimizer::grad_norm_squared() const {
  std::vector<Tensor> mine;
  for (const NamedTensor& shard : shards()) mine.push_back(shard.tensor);
  double squares = autograd::grad_norm_squared(mine);
  group_.all_reduce(std::span(&squares, 1), collectives::ReduceOp::sum, "squares of the gradients");
  return squares;
}

// A rank without shards asks an optimizer of one element.
std::vector<StateEntry> PartitionedOptimizer::state_layout(autograd::DType parameter) const {
  if (local_) return local_->state_layout(parameter);
  ParameterGroup group;
  group.parameters.push_back({"", Tensor::zeros({1}, parameter)});
  return make_({group})->state_layout(parameter);
}

void PartitionedOptimizer::visit_state(const SeeTensor& see) const {
  const std::vector<NamedTensor> local = state();
  for (std::size_t g = 0; g < groups().size(); ++g) {
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      for (const StateEntry& entry : state_layout(shard_dtype(g, i))) {
        const std::string name = parameter.name + "." + entry.name;
        const Tensor whole = collect(
            find(local, name), entry.per_element ? ranges(g, i) : first_keeper_of(ranges(g, i)),
            entry.shape_for(parameter.tensor.shape()), entry.dtype, group_, name);
        if (whole.defined()) see({name, whole});
      }
    }
  }
}

void PartitionedOptimizer::fill_state(const FillTensor& fill) {
  const std::vector<NamedTensor> local = state();
  for (std::size_t g = 0; g < groups().size(); ++g) {
    for (std::size_t i = 0; i < groups()[g].parameters.size(); ++i) {
      const NamedTensor& parameter = groups()[g].parameters[i];
      const ShardRange mine = ranges(g, i)[static_cast<std::size_t>(group_.rank())];
      for (const StateEntry& entry : state_layout(shard_dtype(g, i))) {
        const std::string name = parameter.name + "." + entry.name;
        const Tensor whole = Tensor::empty(entry.shape_for(parameter.tensor.shape()), entry.dtype);
        fill({name, whole});
        const Tensor kept = find(local, name);
        if (!kept.defined()) continue;
        const Tensor range = entry.per_element ? view_of_range(whole, mine) : whole;
        kept.copy_(range.reshape(kept.shape()));
      }
    }
  }
}

}  // namespace ringside::zero

#include "training/mesh/whole_tensors.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::training {

using autograd::NamedTensor;
using autograd::Region;
using autograd::Tensor;
using transformer::ModelPart;
using transformer::ParameterEntry;
using transformer::ParameterTable;

Region WholeTensor::region_in(const ModelPart& part) const {
  return per_element ? entry->region(part.tensor_rank, part.tensor_ranks) : Region::all(shape);
}

bool WholeTensor::is_saved_by(const ModelPart& part) const {
  return transformer::is_counted(part, *entry) && (per_element || part.tensor_rank == 0);
}

std::vector<WholeTensor> whole_parameters(const ParameterTable& table, autograd::DType dtype) {
  std::vector<WholeTensor> order;
  for (const ParameterEntry& entry : table.entries())
    order.push_back({&entry, "", entry.shape, dtype, true});
  return order;
}

// The trainer's groups: first the parameters with weight decay, then the others.
std::vector<WholeTensor> whole_state(const ParameterTable& table,
                                     const autograd::Optimizer& optimizer, autograd::DType dtype) {
  std::vector<WholeTensor> order;
  for (const bool decayed : {true, false})
    for (const ParameterEntry& entry : table.entries()) {
      if (entry.is_decayed() != decayed) continue;
      for (const autograd::StateEntry& state : optimizer.state_layout(dtype))
        order.push_back({&entry, "." + state.name, state.shape_for(entry.shape), state.dtype,
                         state.per_element});
    }
  return order;
}

void collect_whole(const std::vector<WholeTensor>& order, const std::vector<ModelPart>& parts,
                   collectives::ProcessGroup& group,
                   const std::function<void(const SeeTensor&)>& visit, const SeeTensor& see) {
  const auto with_name = [&](const std::string& name) {
    return std::find_if(order.begin(), order.end(),
                        [&](const WholeTensor& each) { return each.name() == name; });
  };

  if (group.rank() != 0) {
    const ModelPart& own = parts[static_cast<std::size_t>(group.rank())];
    visit([&](const NamedTensor& mine) {
      const auto whole = with_name(mine.name);
      if (whole == order.end() || !whole->is_saved_by(own)) return;  // a copy of another rank's
      const Tensor part = mine.tensor.to(autograd::Device::cpu).contiguous();
      group.send(ddp::buffer_of(part, mine.name), 0, mine.name);
    });
    return;
  }

  // Puts together one tensor from this rank's part, if it has one, and those of the others.
  const auto show = [&](const WholeTensor& each, const Tensor& mine) {
    const Tensor whole = Tensor::empty(each.shape, each.dtype);
    if (mine.defined()) each.region_in(parts[0]).of(whole).copy_(mine);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      if (!each.is_saved_by(parts[r])) continue;
      const Region region = each.region_in(parts[r]);
      const Tensor part = Tensor::empty(region.extent, each.dtype);
      group.recv(ddp::buffer_of(part, each.name()), static_cast<int>(r), each.name());
      region.of(whole).copy_(part);
    }
    see({each.name(), whole});
  };
  auto next = order.begin();
  visit([&](const NamedTensor& mine) {
    if (with_name(mine.name) == order.end()) return;  // a tied head beside another rank's embedding
    while (next != order.end() && next->name() != mine.name) show(*next++, {});
    require(next != order.end(), "'{}' is not where the whole model has it", mine.name);
    show(*next++, mine.tensor);
  });
  while (next != order.end()) show(*next++, {});
}

void fill_from_whole(const std::vector<WholeTensor>& order, const ModelPart& part,
                     const std::function<void(const SeeTensor&)>& keep, const SeeTensor& fill) {
  std::map<std::string, Tensor> read;  // parts of tensors that are filled, until they are kept
  auto next = order.begin();
  const auto fill_next = [&] {
    const WholeTensor& each = *next++;
    const Tensor whole = Tensor::empty(each.shape, each.dtype);
    fill({each.name(), whole});
    if (const auto name = transformer::name_in(part, *each.entry))
      read[*name + each.suffix] = each.region_in(part).of(whole).clone();
  };
  keep([&](const NamedTensor& wanted) {
    while (!read.contains(wanted.name)) {
      require(next != order.end(), "'{}' is not where the whole model has it", wanted.name);
      fill_next();
    }
    wanted.tensor.copy_(read.extract(wanted.name).mapped());
  });
  while (next != order.end()) fill_next();
}

}  // namespace ringside::training

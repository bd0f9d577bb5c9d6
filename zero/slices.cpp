#include "zero/slices.hpp"

#include "base/error.hpp"
#include "parallel/replicate.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::ParameterGroup;
using autograd::Tensor;

namespace {

std::vector<Part> parts_at(const ShardPlan& plan, ShardPlan::Place place, int ranks) {
  std::vector<Part> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back(plan.part(place, r));
  return parts;
}

}  // namespace

Tensor move_into_flat_memory(const ShardPlan& plan, std::size_t b) {
  const autograd::MemoryScope scope(autograd::MemoryKind::parameters);
  const Tensor flat =
      Tensor::zeros({plan.padded_elements(b)}, plan.buckets()[b].dtype, plan.buckets()[b].device);
  for (const ddp::BucketEntry& entry : plan.buckets()[b].entries) {
    const Tensor place = ddp::view_in(flat, entry);
    place.copy_(entry.parameter.tensor);
    entry.parameter.tensor.set_data(place);
  }
  return flat;
}

void gather_parameters(const ShardPlan& plan, const std::vector<Tensor>& parameters,
                       collectives::ProcessGroup& group) {
  std::vector<collectives::Work> works;
  for (std::size_t b = 0; b < parameters.size(); ++b)
    works.push_back(ddp::all_gather_async(plan.shard_of(parameters[b], b), parameters[b], group,
                                          fmt::format("parameters of bucket {}", b)));
  for (const auto& work : works) work.wait();
}

std::vector<Tensor> shards_of(const ShardPlan& plan, const std::vector<Tensor>& flats) {
  std::vector<Tensor> shards;
  for (std::size_t b = 0; b < flats.size(); ++b) shards.push_back(plan.shard_of(flats[b], b));
  return shards;
}

Slices slices_of(const ShardPlan& plan, const std::vector<Tensor>& shards) {
  Slices slices;
  for (std::size_t b = 0; b < shards.size(); ++b) {
    slices.emplace_back();
    for (std::size_t e = 0; e < plan.buckets()[b].entries.size(); ++e)
      slices[b].push_back(plan.slice_of(shards[b], {b, e}));
  }
  return slices;
}

void visit_parameters(const std::vector<NamedTensor>& named, const ShardPlan& plan,
                      const Slices& slices, collectives::ProcessGroup& group,
                      const SeeTensor& see) {
  for (const auto& [name, parameter] : named) {
    const auto place = plan.find(parameter);
    const Tensor whole =
        place ? collect(slices[place->bucket][place->entry], parts_at(plan, *place, group.size()),
                        parameter.shape(), parameter.dtype(), group, name)
              : parameter;
    if (whole.defined() && group.rank() == 0) see({name, whole});
  }
}

void visit_gradients(const std::vector<NamedTensor>& named, const ShardPlan& plan,
                     const Slices& slices, const std::vector<std::vector<bool>>& has_gradient,
                     collectives::ProcessGroup& group, const SeeTensor& see) {
  for (const auto& [name, parameter] : named) {
    const auto place = plan.find(parameter);
    if (!place || !has_gradient[place->bucket][place->entry]) continue;
    const Tensor& slice = slices[place->bucket][place->entry];
    const Tensor whole =
        collect(slice.defined() ? slice.grad() : Tensor(), parts_at(plan, *place, group.size()),
                parameter.shape(), parameter.dtype(), group, name);
    if (whole.defined()) see({name, whole});
  }
}

SliceOptimizer::SliceOptimizer(std::vector<ParameterGroup> groups, collectives::ProcessGroup& group,
                               Make make, const ShardPlan& plan, Slices slices,
                               std::function<void()> after_step)
    : PartitionedOptimizer(std::move(groups), group, std::move(make)),
      plan_(plan),
      slices_(std::move(slices)),
      after_step_(std::move(after_step)) {
  share_out_all();
}

void SliceOptimizer::step() {
  step_share();
  after_step_();
}

std::vector<NamedTensor> SliceOptimizer::share_of(const ParameterGroup& added) {
  std::vector<NamedTensor> mine;
  for (const NamedTensor& parameter : added.parameters) {
    const auto [bucket, entry] = place_of(parameter);
    if (slices_[bucket][entry].defined()) mine.push_back({parameter.name, slices_[bucket][entry]});
  }
  return mine;
}

std::vector<Part> SliceOptimizer::parts(std::size_t g, std::size_t i) const {
  return parts_at(plan_, place_of(groups()[g].parameters[i]), group_.size());
}

ShardPlan::Place SliceOptimizer::place_of(const NamedTensor& parameter) const {
  const auto place = plan_.find(parameter.tensor);
  require(
      place.has_value(),
      "'{}' is not among the parameters that are shared out: it was frozen, or is of another model",
      parameter.name);
  return *place;
}

}  // namespace ringside::zero

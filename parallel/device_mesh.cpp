#include "parallel/device_mesh.hpp"

#include "base/error.hpp"
#include "parallel/grid.hpp"

namespace ringside::parallel {

using collectives::ProcessGroup;

namespace {

// Before the groups are made, so that sentences about them name coordinates.
const MeshShape& announced(const MeshShape& shape, ProcessGroup& world) {
  shape.require_ranks(world.size());
  if (!shape.axes().empty()) world.set_mesh(shape.text());
  return shape;
}

std::map<std::vector<Axis>, ProcessGroup> groups_of(const MeshShape& shape, ProcessGroup& world) {
  std::map<std::vector<Axis>, ProcessGroup> groups;
  for (const AxisEntry& entry : all_axes())
    groups.emplace(std::vector{entry.axis},
                   group_along(shape.sizes(), shape.index(entry.axis), world));
  return groups;
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup& world, const MeshShape& shape)
    : world_(world),
      shape_(announced(shape, world)),
      groups_(groups_of(shape, world)),
      model_(world.split(shape.model_members(world.rank()).front())) {}

ProcessGroup& DeviceMesh::group(Axis axis) {
  return groups_.at({axis});
}

// No two groups have the same first rank, so it is the color.
ProcessGroup& DeviceMesh::group(const std::vector<Axis>& axes) {
  std::vector<Axis> along;
  for (const Axis axis : axes)
    if (size(axis) > 1) along.push_back(axis);
  if (along.size() < 2) return group(along.empty() ? axes.front() : along.front());
  const auto found = groups_.find(along);
  if (found != groups_.end()) return found->second;
  const int first = shape_.members(world_.rank(), along).front();
  return groups_.emplace(along, world_.split(first)).first->second;
}

std::vector<ProcessGroup*> DeviceMesh::groups() {
  std::vector<ProcessGroup*> all{&world_, &model_};
  for (auto& [axes, group] : groups_) all.push_back(&group);
  return all;
}

}  // namespace ringside::parallel

#include "parallel/device_mesh.hpp"

#include "base/error.hpp"
#include "parallel/grid.hpp"

namespace ringside::parallel {

using collectives::ProcessGroup;

namespace {

const MeshShape& checked(const MeshShape& shape, int ranks) {
  shape.require_ranks(ranks);
  return shape;
}

std::map<Axis, ProcessGroup> groups_of(const MeshShape& shape, ProcessGroup& world) {
  std::map<Axis, ProcessGroup> groups;
  for (const Axis axis : axes_of(Axes::trained))
    groups.emplace(axis, group_along(shape.sizes(), shape.index(axis), world));
  return groups;
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup& world, const MeshShape& shape)
    : world_(world),
      shape_(checked(shape, world.size())),
      groups_(groups_of(shape, world)),
      model_(world.split(shape.coordinate(world.rank(), Axis::dp))) {}

ProcessGroup& DeviceMesh::group(Axis axis) {
  const auto found = groups_.find(axis);
  require(found != groups_.end(), "no model is trained along the axis {}", name_of(axis));
  return found->second;
}

}  // namespace ringside::parallel

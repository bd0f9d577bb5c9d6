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

ProcessGroup group_of(Axis axis, const MeshShape& shape, ProcessGroup& world) {
  return group_along(shape.sizes(), shape.index(axis), world);
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup& world, const MeshShape& shape)
    : world_(world),
      shape_(checked(shape, world.size())),
      pipeline_(group_of(Axis::pp, shape, world)),
      data_(group_of(Axis::dp, shape, world)),
      tensor_(group_of(Axis::tp, shape, world)),
      model_(world.split(shape.coordinate(world.rank(), Axis::dp))) {}

ProcessGroup& DeviceMesh::group(Axis axis) {
  switch (axis) {
    case Axis::pp:
      return pipeline_;
    case Axis::dp:
      return data_;
    case Axis::tp:
      return tensor_;
  }
  fail("a mesh has no axis number {}", static_cast<int>(axis));
}

}  // namespace ringside::parallel

#include "parallel/device_mesh.hpp"

#include "base/error.hpp"

namespace ringside::parallel {

using collectives::ProcessGroup;

namespace {

const MeshShape& checked(const MeshShape& shape, int ranks) {
  shape.require_ranks(ranks);
  return shape;
}

// The group of this rank along one axis. The ranks of a group agree on its first member, and no
// other group has that member: so its rank is the color. The coordinate is the key.
//
//     dp=2,tp=3, along tp:    rank    0 1 2   3 4 5        along dp:    0 1 2 3 4 5
//                             color   0 0 0   3 3 3                     0 1 2 0 1 2
//                             key     0 1 2   0 1 2                     0 0 0 1 1 1
ProcessGroup group_along(Axis axis, const MeshShape& shape, ProcessGroup& world) {
  const int color = shape.members(world.rank(), axis).front();
  const int key = shape.coordinate(world.rank(), axis);
  return world.split(color, key);
}

}  // namespace

DeviceMesh::DeviceMesh(ProcessGroup& world, const MeshShape& shape)
    : world_(world),
      shape_(checked(shape, world.size())),
      pipeline_(group_along(Axis::pp, shape, world)),
      data_(group_along(Axis::dp, shape, world)),
      tensor_(group_along(Axis::tp, shape, world)),
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

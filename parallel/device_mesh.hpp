// DeviceMesh: the ranks of a job in a grid, with a process group along each axis.
//
//     DeviceMesh mesh(world, MeshShape("dp=2,tp=2"));
//     mesh.group(Axis::tp)      the ranks that divide a matrix with this one
//     mesh.group(Axis::dp)      the ranks that hold the same part of the model as this one
//
// Along an axis of size 1 the group is this rank alone, and its calls copy from input to output. So
// code for a mesh needs no case for a missing axis.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "parallel/mesh_shape.hpp"

namespace ringside::parallel {

class DeviceMesh {
 public:
  // Divides `world` once for each axis and once for the model group. All ranks must construct the
  // same mesh at the same point of their calls. `world` must live as long as the mesh. Throws Error
  // if the shape does not have world.size() ranks, and the errors of ProcessGroup::split.
  DeviceMesh(collectives::ProcessGroup& world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  int ranks() const { return shape_.ranks(); }
  int size(Axis axis) const { return shape_.size(axis); }
  // Of this rank, which is also its rank in group(axis).
  int coordinate(Axis axis) const { return shape_.coordinate(world_.rank(), axis); }
  // The coordinates of any rank of the world: "pp=1,dp=0,tp=1".
  std::string describe(int rank) const { return shape_.describe(rank); }

  // The ranks that differ from this one along `axis` only, in the order of their coordinates. Each
  // group has its own connections, so calls in different groups may run at the same time.
  collectives::ProcessGroup& group(Axis axis);
  // The ranks that differ from this one along any of these axes. The first time that they are asked
  // for, all ranks must do so at the same point of their calls. If at most one of the axes has more
  // than one rank, this is group() of that axis.
  collectives::ProcessGroup& group(const std::vector<Axis>& axes);
  // The ranks that hold one copy of the model together (MeshShape::model_members).
  collectives::ProcessGroup& model_group() { return model_; }
  collectives::ProcessGroup& world() { return world_; }
  // All of them.
  std::vector<collectives::ProcessGroup*> groups();

 private:
  collectives::ProcessGroup& world_;
  MeshShape shape_;
  std::map<std::vector<Axis>, collectives::ProcessGroup> groups_;
  collectives::ProcessGroup model_;
};

}  // namespace ringside::parallel

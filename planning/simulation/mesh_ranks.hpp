// MeshRanks: which rank stands at which place of a mesh.
//
//     pp=2,dp=2,tp=2     rank(pp 1, data 0, tp 1) = 5
//
// The data-parallel axes dp and fsdp are also counted as one: data index = dp * (size of fsdp) +
// fsdp. A REPLICA is all ranks of one data index: together they hold the model once.
#pragma once

#include <cstdint>
#include <string_view>

#include "planning/plan.hpp"

namespace ringside::planning {

// The ranks first, first + stride, ..., `count` of them: a group along one axis.
struct RankGroup {
  std::int64_t first = 0, count = 1, stride = 1;
  std::int64_t last() const { return first + (count - 1) * stride; }
};

class MeshRanks {
 public:
  explicit MeshRanks(const MeshShape& mesh)
      : pp_(extent(mesh, Axis::pp)),
        dp_(extent(mesh, Axis::dp)),
        fsdp_(extent(mesh, Axis::fsdp)),
        cp_(extent(mesh, Axis::cp)),
        tp_(extent(mesh, Axis::tp)) {}

  // The rank of context index 0 and tensor index 0; unit_group() has the others.
  std::int64_t rank(std::int64_t pp, std::int64_t data) const {
    return pp * pp_.stride + data / fsdp_.size * dp_.stride + data % fsdp_.size * fsdp_.stride;
  }

  // The groups that contain rank(pp, data).
  RankGroup tensor_group(std::int64_t pp, std::int64_t data) const {
    return {rank(pp, data), tp_.size, tp_.stride};
  }
  RankGroup context_group(std::int64_t pp, std::int64_t data) const {
    return {rank(pp, data), cp_.size, cp_.stride};
  }
  // Those of one pipeline rank and replica, along cp and tp. The axis tp is inside of cp.
  RankGroup unit_group(std::int64_t pp, std::int64_t data) const {
    return {rank(pp, data), cp_.size * tp_.size, tp_.size > 1 ? tp_.stride : cp_.stride};
  }
  RankGroup dp_group(std::int64_t pp, std::int64_t data) const {
    return {rank(pp, data % fsdp_.size), dp_.size, dp_.stride};
  }
  RankGroup fsdp_group(std::int64_t pp, std::int64_t data) const {
    return {rank(pp, data / fsdp_.size * fsdp_.size), fsdp_.size, fsdp_.stride};
  }
  // Those that shard the state, or reduce gradients, along this axis and along cp, which is inside
  // of it and whose ranks hold the same parameters.
  RankGroup state_group(std::string_view axis, std::int64_t pp, std::int64_t data) const {
    if (axis == "cp") return context_group(pp, data);
    RankGroup group = axis == "dp" ? dp_group(pp, data) : fsdp_group(pp, data);
    if (cp_.size > 1) group.count *= cp_.size, group.stride = cp_.stride;
    return group;
  }

 private:
  struct Extent {
    std::int64_t size = 1, stride = 0;
  };
  static Extent extent(const MeshShape& mesh, Axis axis) {
    return {mesh.size(axis), mesh.size(axis) > 1 ? mesh.stride(axis) : 0};
  }

  Extent pp_, dp_, fsdp_, cp_, tp_;
};

}  // namespace ringside::planning

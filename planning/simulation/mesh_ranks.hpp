// MeshRanks: which rank stands at which place of a mesh.
//
//     pp=2,dp=2,tp=2     rank(pp 1, data 0, tp 1) = 5
//
// The axes that divide the batch are also counted as one: data index = (dp * (size of fsdp) + fsdp)
// * (size of ep) + ep. A REPLICA is all ranks of one data index: together they hold the model once,
// but of its experts those of one rank of ep.
#pragma once

#include <cstdint>

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
        tp_(extent(mesh, Axis::tp)),
        ep_(extent(mesh, Axis::ep)) {}

  // The rank of context index 0 and tensor index 0; unit_group() has the others.
  std::int64_t rank(std::int64_t pp, std::int64_t data) const {
    const std::int64_t ep = data % ep_.size, both = data / ep_.size;
    return pp * pp_.stride + both / fsdp_.size * dp_.stride + both % fsdp_.size * fsdp_.stride +
           ep * ep_.stride;
  }

  // The data index of the first of those that exchange tokens for their experts.
  std::int64_t first_of_experts(std::int64_t data) const { return data - data % ep_.size; }

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
    return {rank(pp, data % (fsdp_.size * ep_.size)), dp_.size, dp_.stride};
  }
  RankGroup fsdp_group(std::int64_t pp, std::int64_t data) const {
    const std::int64_t fsdp = data / ep_.size % fsdp_.size;
    return {rank(pp, data - fsdp * ep_.size), fsdp_.size, fsdp_.stride};
  }
  RankGroup expert_group(std::int64_t pp, std::int64_t data) const {
    return {rank(pp, first_of_experts(data)), ep_.size, ep_.stride};
  }
  // Those that shard the state, or reduce gradients, along this axis and along cp, which is inside
  // of it and whose ranks hold the same parameters. With pp in between, the stride is a mean.
  RankGroup state_group(Axis axis, std::int64_t pp, std::int64_t data) const {
    if (axis == Axis::cp) return context_group(pp, data);
    RankGroup group = axis == Axis::dp ? dp_group(pp, data) : fsdp_group(pp, data);
    if (cp_.size > 1) group.count *= cp_.size, group.stride /= cp_.size;
    return group;
  }
  // Those that make the calls along an axis (PlanLoad::for_calls).
  RankGroup group(Axis axis, bool is_state, std::int64_t pp, std::int64_t data) const {
    if (axis == Axis::tp) return tensor_group(pp, data);
    if (axis == Axis::ep) return expert_group(pp, data);
    if (axis == Axis::cp || is_state) return state_group(axis, pp, data);
    return dp_group(pp, data);
  }

 private:
  struct Extent {
    std::int64_t size = 1, stride = 0;
  };
  static Extent extent(const MeshShape& mesh, Axis axis) {
    return {mesh.size(axis), mesh.size(axis) > 1 ? mesh.stride(axis) : 0};
  }

  Extent pp_, dp_, fsdp_, cp_, tp_, ep_;
};

}  // namespace ringside::planning

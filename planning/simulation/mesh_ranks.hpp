// MeshRanks: which rank stands at which place of a mesh.
//
//     pp=2,dp=2,tp=2     rank(pp 1, data 0, tp 1) = 5
//
// The axes that divide the batch are also counted as one: data index = (dp * (size of fsdp) + fsdp)
// * (size of ep) + ep. A REPLICA is all ranks of one data index: together they hold the model once,
// but of its experts those of one rank of ep.
#pragma once

#include <array>
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
  explicit MeshRanks(const MeshShape& mesh) {
    for (const parallel::AxisEntry& each : parallel::all_axes())
      if (const int size = mesh.size(each.axis); size > 1)
        extents_[static_cast<std::size_t>(each.axis)] = {size, mesh.stride(each.axis)};
  }

  // The rank of context index 0 and tensor index 0; unit_group() has the others.
  std::int64_t rank(std::int64_t pp, std::int64_t data) const {
    const Extent &fsdp = of(Axis::fsdp), &ep = of(Axis::ep);
    const std::int64_t both = data / ep.size;
    return pp * of(Axis::pp).stride + both / fsdp.size * of(Axis::dp).stride +
           both % fsdp.size * fsdp.stride + data % ep.size * ep.stride;
  }

  // The data index of the first of those that exchange tokens for their experts.
  std::int64_t first_of_experts(std::int64_t data) const { return data - data % of(Axis::ep).size; }

  // Those of one pipeline rank and replica, along cp and tp. The axis tp is inside of cp.
  RankGroup unit_group(std::int64_t pp, std::int64_t data) const {
    const Extent &cp = of(Axis::cp), &tp = of(Axis::tp);
    return {rank(pp, data), cp.size * tp.size, tp.size > 1 ? tp.stride : cp.stride};
  }
  // Those that differ from rank(pp, data) along `axis` only.
  RankGroup along(Axis axis, std::int64_t pp, std::int64_t data) const {
    const auto& [size, stride] = of(axis);
    const std::int64_t member = rank(pp, data);
    return {member - (size > 1 ? member / stride % size * stride : 0), size, stride};
  }
  // Those that shard the state, or reduce gradients, along this axis and along cp, which is inside
  // of it and whose ranks hold the same parameters. With pp in between, the stride is a mean.
  RankGroup state_group(Axis axis, std::int64_t pp, std::int64_t data) const {
    RankGroup group = along(axis, pp, data);
    if (const std::int64_t cp = of(Axis::cp).size; axis != Axis::cp && cp > 1)
      group.count *= cp, group.stride /= cp;
    return group;
  }
  // Those that make the calls along an axis (PlanLoad::for_calls).
  RankGroup group(Axis axis, bool is_state, std::int64_t pp, std::int64_t data) const {
    return is_state ? state_group(axis, pp, data) : along(axis, pp, data);
  }

 private:
  struct Extent {
    std::int64_t size = 1, stride = 0;
  };
  const Extent& of(Axis axis) const { return extents_[static_cast<std::size_t>(axis)]; }

  std::array<Extent, 6> extents_;
};

}  // namespace ringside::planning

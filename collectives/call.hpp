// A call: what every rank must ask for alike.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "collectives/algorithms/collective.hpp"
#include "collectives/data_type.hpp"

namespace ringside::collectives {

// The caller's name for the data, such as "model.norm.weight". It is a part of the call: ranks
// compare it, and errors show it. A name that is too long loses its beginning, which says less than
// its end.
struct Label {
  char text[43] = {};
  Label() = default;
  Label(std::string_view name);
  std::string_view view() const { return {text, ::strnlen(text, sizeof text)}; }
  bool operator==(const Label&) const = default;
};

// One call of a collective, the same on every rank; or of a send and its recv, the same on both.
struct Call {
  static constexpr std::uint8_t not_told =
      255;  // algorithm: a record has no algorithm, root, operation

  Collective collective = Collective::barrier;
  std::uint8_t algorithm = 0;  // number_of() it in the catalogue
  DataType type = DataType::fp32;
  ReduceOp reduce = ReduceOp::sum;
  std::int32_t root = 0;    // where the collective has one; in a point_to_point the rank that sends
  std::uint64_t count = 0;  // elements of the whole buffer: the input of reduce_scatter and
                            // scatter, the output of all_gather and gather
  std::int32_t peer = 0;    // in a point_to_point the rank that receives
  Label label;
  std::uint8_t unequal = 0;  // 1: each block has a size of its own (buffer.hpp). The call of an
                             // all_to_all has count 0 then: each rank knows only its own blocks
  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 64, "the layout is a part of the wire format");

class RankNames;

// "all_reduce of 1000 fp32 (sum, ring)", and " for model.norm.weight" if the call has a label.
std::string describe(const Call& call);
std::string describe(const Call& call, const RankNames& names);

}  // namespace ringside::collectives

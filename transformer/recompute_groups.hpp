// Which blocks backward computes again together (autograd/engine/checkpointing.hpp): groups, and
// perhaps groups within groups.
//
//     12 blocks     drawn                kept after forward   while backward is in one   forward
//     none                               12 blocks            12 blocks                  once
//     full          |.|.|.|.|.|.|...     12 inputs            1 block                    twice
//     every=4       |....|....|....|     3 inputs             4 blocks                   twice
//     nested=6,2    |..:..:..|..:..:..|  2 inputs             3 inputs, 2 blocks         3 times
//
// With L blocks whose activations are A times their input, groups of K keep L/K inputs and K A: the
// least at K = sqrt(L / A). Groups of K1 with groups of K2 inside keep L/K1 + K1/K2 inputs and
// K2 A: the least, with all three equal, is of the order of the cube root of L.
//
// Source: Chen et al., "Training deep nets with sublinear memory cost" (2016), sections 3 and 4.
#pragma once

#include <cstdint>
#include <string>

namespace ringside::transformer {

struct RecomputeGroups {
  std::int64_t blocks = 0;  // of a group; the last one of a stage may be smaller. 0: none
  std::int64_t inner = 0;   // of the groups within it; 0: there are none
  bool operator==(const RecomputeGroups&) const = default;
};

// The values of --recompute, both ways: "none", "full", "every=4", "nested=8,2". "selective" is
// read as none: attention keeps no scores, so there is nothing to compute again. Throws Error that
// says what was expected.
RecomputeGroups recompute_groups_from(const std::string& text);
std::string text_of(const RecomputeGroups& groups);

}  // namespace ringside::transformer

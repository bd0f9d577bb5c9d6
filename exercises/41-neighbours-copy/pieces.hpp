// What ranks hold of a model in training, and what they do in a step. Students get this file whole.
#pragma once

#include <compare>
#include <set>
#include <vector>

namespace ringside::backup {

// zero1 as in exercise 19: gradients are all-reduced, and a parameter's owner keeps its moments.
// zero2 and zero3 reduce-scatter them.
enum class Strategy { data_parallel, zero1, zero2, zero3 };

enum class Kind { parameters, moments };  // AdamW's two moments count as one piece

// Parameters and moments are divided into as many shards as there are ranks; rank r updates shard
// r. Under data_parallel every rank updates all of them.
struct Piece {
  Kind kind = Kind::parameters;
  int shard = 0;
  auto operator<=>(const Piece& other) const = default;
};
using Pieces = std::set<Piece>;

// What a rank does in a step. Where it waits for others, they must have come to the same action.
enum class Action {
  compute,  // forward and backward; the reduced gradients of the step before are overwritten
  reduce,   // of the gradients; waits for all. Then a rank has all shards of them, reduced, under
            // data_parallel and zero1, and its own shard under zero2 and zero3
  send_gradient,  // sends its reduced shard to the rank that holds a copy of its shard, and waits
                  // for the gradient of the shard of which it holds a copy
  agree,          // the mean of the loss over all ranks: one number; waits for all
  update,         // of its own shard: parameters and moments become those of this step
  send_state,     // sends its own shard where send_gradient does, and waits for the one that it
                  // copies: the copy becomes that of this step
  update_copy,    // of the shard of which it holds a copy, with that shard's gradient
  gather          // of the updated shards of the parameters; waits for all
};

// Bytes on one rank.
struct Bytes {
  double kept = 0;  // for others, between two steps
  double sent = 0;  // in a step, beyond what the strategy sends anyway
};

}  // namespace ringside::backup

namespace student::backup {
using namespace ringside::backup;
}

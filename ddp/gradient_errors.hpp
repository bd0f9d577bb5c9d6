// How the methods with buckets or a flat buffer report gradients that are missing, or complete too
// often.
//
// Ranks must agree on which parameters have a gradient. The label of a call says which set is
// missing, and every message of a call carries its label (collectives/call.hpp): ranks that lack
// different gradients throw, instead of adding zeros or the wrong parameter's numbers. A label has
// room for 43 characters, so it carries the number of missing gradients and a hash of their names.
// The names themselves are added to the error of the rank that lacks them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace ringside::ddp {

// `data` if nothing is missing; else "bucket 1 without 2 gradients (1c0ffee)", where the brackets
// hold a hash of all names, in their order.
std::string label_without(std::string_view data, const std::vector<std::string>& missing);

// Throws `error` again, with the names of the gradients that this rank lacks, if any. Call it in
// the catch block.
[[noreturn]] void rethrow_with_names(const Error& error, int rank,
                                     const std::vector<std::string>& missing);

// Throws Error: the gradient of `parameter` is complete a second time before finish().
[[noreturn]] void refuse_second_gradient(const std::string& parameter);

}  // namespace ringside::ddp

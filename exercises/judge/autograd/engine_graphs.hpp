// Graphs for the judge of the engine, and what a backward through them does.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

// The engine: the student's, or the reference.
using Backward = std::function<void(const autograd::Tensor& loss, const autograd::Tensor& seed)>;
using AccumulateGradient =
    std::function<void(const autograd::Tensor& leaf, const autograd::Tensor& grad)>;

std::vector<double> numbers(const autograd::Tensor& tensor);
autograd::Tensor random_leaf(std::uint64_t seed, std::uint64_t which, std::int64_t length = 3);

// The gradients of four leaves of random graph `which`, which uses most results several times: a
// list of numbers for each, empty for none.
Json run_random_graph(std::uint64_t seed, std::uint64_t which, const Backward& backward);

// Three uses of w, one of v: {"events": [{"what": "the hook of w", "gradient"}], "w", "v"}, where w
// and v are the gradients in the end.
Json run_tied_graph(std::uint64_t seed, const Backward& backward);

// Four layers x (v w) and two branches: ["backward enters layer 7", "the hook of 7.v", ...].
Json run_layers(std::uint64_t seed, const Backward& backward);

// What is in memory that others hold, too, after two backwards and after gradients of leaves: the
// numbers of each tensor by name, and whether the "second backward" "threw" or "returned".
Json use_shared_memory(std::uint64_t seed, const Backward& backward,
                       const AccumulateGradient& accumulate);

}  // namespace ringside::exercises

// MemoryNeed: the memory that one rank needs, known before any is allocated.
//
// State is exact: the elements of the parameter table, divided as the strategy divides them.
// Activations are those of the blocks between their forward and their backward, and what an action
// of the schedule computes with. So a step has its peak in one of two places:
//
//     F F F F head    most activations are kept
//     B B B B         activations are freed, and gradients are made
//
// Two things depend on the speed of other ranks. Gradients under way (zero2, zero3) are counted as
// if the network was slow; messages of a pipeline as if none waited.
#pragma once

#include <cstdint>
#include <string>

#include "training/plan/plan.hpp"

namespace ringside::training {

// In bytes.
struct MemoryNeed {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0;  // the most of each kind
  double peak = 0;  // the most of all together: less than the sum of kinds at different moments
};

// Of a rank with this coordinate along pp; ranks that differ along other axes need the same. The
// plan must be valid. Without a mesh there are `data_ranks`.
MemoryNeed memory_of_rank(const Plan& plan, int data_ranks, int pipeline_rank);

// Of the rank along pp that needs most.
MemoryNeed memory_of_largest_rank(const Plan& plan, int data_ranks);

// For transformer::evaluate() with `sequences` sequences of `length` tokens at once, and the logits
// of `kept_logits` tokens kept.
MemoryNeed memory_to_evaluate(const transformer::Config& config, autograd::DType dtype,
                              std::int64_t sequences, std::int64_t length, bool gradients,
                              double kept_logits = 0,
                              autograd::Device device = autograd::Device::cpu);

// For transformer::generate() with a prompt of `tokens` tokens, including the KV cache.
MemoryNeed memory_to_generate(const transformer::Config& config, autograd::DType dtype,
                              std::int64_t tokens);

// What a checkpoint holds, in bytes: parameters and the optimizer's state, of the whole model. So
// much memory its copy takes on rank 0 while it is written.
double checkpoint_bytes(const transformer::Config& config, autograd::DType dtype,
                        OptimizerKind optimizer);

// How often the gradients of a rank are in its memory: once, and in what ddp/ holds beside them.
// `ranks` average them.
double gradient_copies(const std::string& strategy, autograd::DType dtype, double ranks);

}  // namespace ringside::training

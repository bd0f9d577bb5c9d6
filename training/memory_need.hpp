// MemoryNeed: the memory that one rank needs, known before any is allocated.
//
// State is exact: the elements of the parameter table, divided as the strategy divides them.
// Activations are one formula: the micro-batches that the schedule keeps between forward and
// backward, each with what a block keeps, and what one block or the head computes with. So a step
// has its peak in one of two places:
//
//     F F F F head    most activations are kept
//     B B B B         activations are freed, and gradients are made
//
// The estimate and the ledger of a run differ by at most
//
//      5 %    in general
//      8 %    with experts: equal loads are counted
//     10 %    where backward has two actions, which keep different activations (zb_h1, zb_v)
//     20 %    zero2 and zero3: gradients under way are counted as if the network was slow
//     35 %    bf16: where it is converted to fp32 depends on the processor
//
// tests/training/memory_tolerance.hpp has these numbers, and a message of a pipeline may wait
// beside them.
#pragma once

#include <cstdint>
#include <string>

#include "training/plan.hpp"

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

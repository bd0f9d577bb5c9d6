// How many parameters a model has, part by part.
//
// Symbols: d width, f width inside the feed-forward part, kv width of all key (or value) heads,
// V vocabulary, L blocks, s longest sequence.
#pragma once

#include <vector>

#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

// The matrices of one block, which tensor parallel divides; and with experts the router, which it
// does not.
Term block_matrices(const Model& model);

// The same without the experts that a token does not use; equal without experts.
Term active_matrices(const Model& model);

// All parameters but the experts that a token does not use. For models with experts.
Term active_parameters(const Model& model);

// The norms and biases of one block, which every rank of a tensor-parallel group keeps.
Term block_vectors(const Model& model);

// The table of tokens, and of positions where they are learned.
Term embedding(const Model& model);

// The last norm.
Term last_norm(const Model& model);

// The matrix of the head; 0 if it is the embedding's.
Term head(const Model& model);

// A block on one of t tensor-parallel ranks: matrices divided, vectors and router whole; of the
// experts those of one of the expert-parallel ranks (Experts::ranks).
Term whole_block(const Model& model, const Quantity& t);

// The matrix by which the feed-forward part of a block ends, on one of t tensor-parallel ranks;
// with experts, those of all experts that the rank holds.
Quantity down_projection(const Model& model, const Quantity& t);

// The parameters of a part of the pipeline on one of t tensor-parallel ranks: its blocks, and where
// it has them the embedding, the last norm and the head.
Quantity stage_parameters(const Model& model, const Quantity& t, const PipelinePart& part);

// All parameters, with the parts that they are the sum of. The last term is the total.
std::vector<Term> parameter_count(const Model& model);

}  // namespace ringside::planning

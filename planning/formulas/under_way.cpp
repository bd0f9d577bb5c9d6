#include "planning/formulas/under_way.hpp"

#include "planning/formulas/parameters.hpp"

namespace ringside::planning {

Term largest_unit(const Model& model, const Quantity& t, const PipelinePart& part) {
  const Term block = whole_block(model, t);
  Quantity largest = block;
  if (part.has_embedding && model.vocabulary > 0) largest = max(largest, embedding(model) / t);
  if (part.has_head && model.vocabulary > 0)
    largest = max(block, embedding(model) / t + last_norm(model));
  return {"P_unit", "the largest unit on one rank", largest, Unit::number, "zero/wrap_policy.hpp"};
}

Term largest_parameter(const Model& model, const Quantity& t, const PipelinePart& part) {
  const Quantity d("d", model.d_model), f("f", model.d_ff), q("q", model.q_width()),
      vocabulary("V", model.vocabulary);
  const bool has_edge = part.has_embedding || part.has_head;
  return {"P_largest", "the largest matrix on one rank",
          d * (has_edge ? max(vocabulary, max(f, q)) : max(f, q)) / t, Unit::number,
          "ddp/buckets.hpp"};
}

Term gathered_units(const Quantity& block, const Quantity& largest, const Types& types) {
  const Quantity e("e", types.parameters);
  return {"M_units", "parameters of two units, gathered", e * (block + largest), Unit::bytes,
          "zero/zero3.hpp"};
}

Term reduced_units(const Quantity& block, const Quantity& largest, const Types& types) {
  const Quantity g("e_g", types.gradients);
  return {"M_reduced", "gradients of units, until they are reduced", g * 2 * (block + largest),
          Unit::bytes, "zero/zero3.hpp"};
}

Term reduced_buckets(const Quantity& parameters, const Quantity& largest, double bucket_bytes,
                     const Types& types) {
  const Quantity g("e_g", types.gradients), bucket("b", bucket_bytes);
  return {"M_reduced", "gradients in buckets, until they are reduced",
          g * largest + min(max(bucket, g * largest) + 2 * bucket, g * parameters), Unit::bytes,
          "zero/gradient_shards.hpp"};
}

}  // namespace ringside::planning

// The inputs of formulas as JSON, for programs that answer.
#pragma once

#include "base/json.hpp"
#include "exercises/judge/planning/bounds.hpp"
#include "exercises/judge/planning/state.hpp"

template <>
struct ringside::JsonForm<ringside::planning::Types> {
  static Json to_json(const planning::Types& types) {
    return {{"parameters", types.parameters}, {"gradients", types.gradients}};
  }
};
template <>
struct ringside::JsonForm<ringside::planning::Plan> {
  static Json to_json(const planning::Plan& plan) {
    return {{"zero", plan.zero}, {"dp", plan.mesh.data_ranks()}};
  }
};
template <>
struct ringside::JsonForm<ringside::planning::Shards> {
  static planning::Shards from_json(const Json& json) {
    return {json.at("parameters"), json.at("gradients"), json.at("optimizer")};
  }
};
template <>
struct ringside::JsonForm<ringside::planning::SplitInput> {
  static Json to_json(const planning::SplitInput& input) {
    return {{"D", input.width},        {"F", input.inner},         {"X", input.fsdp},
            {"Y", input.tensor},       {"C", input.peak},          {"W", input.bandwidth},
            {"M_X", input.torus_fsdp}, {"M_Y", input.torus_tensor}};
  }
};

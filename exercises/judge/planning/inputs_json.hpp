// The inputs of formulas as JSON, for programs that answer.
#pragma once

#include <nlohmann/json.hpp>

#include "planning/formulas/bounds.hpp"
#include "planning/formulas/state.hpp"

template <>
struct nlohmann::adl_serializer<ringside::planning::Types> {
  static void to_json(json& json, const ringside::planning::Types& types) {
    json = {{"parameters", types.parameters}, {"gradients", types.gradients}};
  }
};
template <>
struct nlohmann::adl_serializer<ringside::planning::Plan> {
  static void to_json(json& json, const ringside::planning::Plan& plan) {
    json = {{"zero", plan.zero}, {"dp", plan.mesh.data_ranks()}};
  }
};
template <>
struct nlohmann::adl_serializer<ringside::planning::Shards> {
  static void from_json(const json& json, ringside::planning::Shards& shards) {
    shards = {json.at("parameters"), json.at("gradients"), json.at("optimizer")};
  }
};
template <>
struct nlohmann::adl_serializer<ringside::planning::SplitInput> {
  static void to_json(json& json, const ringside::planning::SplitInput& input) {
    json = {{"D", input.width},        {"F", input.inner},         {"X", input.fsdp},
            {"Y", input.tensor},       {"C", input.peak},          {"W", input.bandwidth},
            {"M_X", input.torus_fsdp}, {"M_Y", input.torus_tensor}};
  }
};

// The figures of papers and of a course, from the same formulas as `ringside account`.
#include <array>
#include <cmath>

#include <doctest/doctest.h>

#include "planning/account.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/bounds.hpp"
#include "planning/formulas/devices.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/work.hpp"

using namespace ringside::planning;

namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

// Within a share of the expected value.
void near(double seen, double expected, double share) {
  CHECK(seen == doctest::Approx(expected).epsilon(share));
}

double parameters_of(const char* name) {
  return parameter_count(find_model(name)).back().value();
}

// The four models of Korthikanti et al. 2022, table 3, with the mesh of each.
struct Published {
  const char* name;
  std::int64_t pp, chunks, micro_batch, batch;
  double state_gib, full_gib, selective_gib;  // figure 1
  double full_seconds, selective_seconds;     // table 5
};
constexpr std::array<Published, 4> korthikanti = {{
    {"korthikanti-22b", 1, 1, 4, 4, 45.56, 59.25, 9.56, 1.42, 1.10},
    {"korthikanti-175b", 8, 3, 1, 64, 45.56, 66.84, 12.35, 18.13, 13.75},
    {"korthikanti-530b", 35, 3, 1, 280, 31.64, 114.02, 23.08, 49.05, 37.83},
    {"korthikanti-1t", 64, 1, 1, 512, 32.96, 131.25, 26.56, 94.42, 71.49},
}};

Plan plan_of(const Published& row, Recompute recompute, bool sequence_parallel) {
  Plan plan{.chunks = row.chunks,
            .micro_batch = row.micro_batch,
            .micro_batches = row.batch / row.micro_batch,
            .sequence = 2048,
            .recompute = recompute,
            .sequence_parallel = sequence_parallel,
            .types = {.gradients = 4},
            .fused_gradients = true};
  plan.schedule = row.chunks > 1 ? "interleaved" : "1f1b";
  plan.mesh = MeshShape("tp=8");
  if (row.pp > 1) plan.mesh = plan.mesh.with(Axis::pp, static_cast<int>(row.pp));
  return plan;
}

// Products of any width reach a share `wide` of the peak, narrow ones as much less as before.
void scale_efficiencies(Machine& machine, double wide) {
  const double scale = wide / machine.matmul_efficiency_by_width.back().efficiency;
  for (EfficiencyAt& row : machine.matmul_efficiency_by_width) row.efficiency *= scale;
}

// The efficiency of wide matrix products with which the 22B model takes its two published times,
// each with the same relative error.
double efficiency_fitted_on_22b() {
  const Model model = find_model("korthikanti-22b");
  Machine machine = find_machine("a100");
  const auto error = [&](double efficiency) {
    scale_efficiencies(machine, efficiency);
    double product = 1;
    product *=
        account(model, plan_of(korthikanti[0], Recompute::full, false), machine).step_seconds /
        korthikanti[0].full_seconds;
    product *=
        account(model, plan_of(korthikanti[0], Recompute::selective, true), machine).step_seconds /
        korthikanti[0].selective_seconds;
    return product - 1;
  };
  double low = 0.1, high = 1;
  for (int i = 0; i < 50; ++i) (error((low + high) / 2) > 0 ? low : high) = (low + high) / 2;
  return low;
}

// A published speed as the time of a step: FLOPs over `devices` of `speed` FLOP/s each.
double step_at_speed(double flops, double devices, double speed) {
  return flops / (devices * speed);
}

// With full recomputation (Narayanan et al. 2021, equation 4).
double training_days(double parameters, double seen, double devices, double speed) {
  return 8 * seen * parameters / (86400 * devices * speed);
}

}  // namespace

TEST_CASE("the course's XXL: parameters, state, devices, activations") {
  const Model xxl = find_model("xxl");
  CHECK(parameters_of("xxl") == 219'848'638'464);
  const Types types{.parameters = 4, .gradients = 4, .activations = 2};
  const Term state = state_of_model(Quantity("P", 219'848'638'464), types);
  CHECK(state.value() == 3'517'578'215'424);
  near(state.value() / 80e9, 43.97, 1e-4);
  CHECK(devices_for_state(state, 80e9).value() == 44);
  // Published wrong answer: GiB divided by GB.
  CHECK(std::ceil(state.value() / gib / 80) == 41);
  const Plan one{.micro_batch = 1, .sequence = 1};
  CHECK(126 * block_activations(xxl, one).value() == 17'547'264);
}

TEST_CASE("the course's XXL under FSDP on devices of 95 GB") {
  const Quantity state(3'517'578'215'424), token(17'547'264);
  CHECK(fsdp_devices(state, 0, 95e9).value() == 38);
  CHECK(fsdp_devices(state, 4096 * token, 95e9).value() == 61);
  CHECK(fsdp_bytes(state, 4096 * token, 61).value() < 95e9);
  CHECK(fsdp_bytes(state, 4096 * token, 60).value() > 95e9);
}

TEST_CASE("the course's XXL is bound by computing: three bounds, each with its name") {
  const SplitInput split{.width = 16384,
                         .inner = 53248,
                         .fsdp = 16,
                         .tensor = 4,
                         .peak = 4.6e14,
                         .bandwidth = 1.8e11,
                         .torus_fsdp = 2,
                         .torus_tensor = 1};
  near(tokens_if_overlapped(split).value(), 319.44, 2e-5);
  CHECK(std::round(64 * tokens_if_overlapped(split).value()) == 20'444);
  near(tokens_if_added(split).value(), 395.3, 2e-4);
  near(tokens_at_best_split(split).value(), 61.35, 1e-3);
  CHECK(std::round(64 * tokens_at_best_split(split).value()) == 3925);
  near(best_fsdp(split).value(), 3.07, 1e-3);
  near(largest_tensor(split).value(), 20.84, 1e-3);

  // The bounds are where the three times meet.
  const double overlapped = 64 * tokens_if_overlapped(split).value(),
               added = 64 * tokens_if_added(split).value();
  near(split_compute_seconds(split, overlapped).value(), split_fsdp_seconds(split).value(), 1e-12);
  CHECK(split_tensor_seconds(split, overlapped).value() < split_fsdp_seconds(split).value());
  near(split_compute_seconds(split, added).value(),
       split_fsdp_seconds(split).value() + split_tensor_seconds(split, added).value(), 1e-12);
  SplitInput best = split;
  best.fsdp = best_fsdp(split).value(), best.tensor = 64 / best.fsdp;
  const double least = 64 * tokens_at_best_split(split).value();
  near(split_fsdp_seconds(best).value(), split_tensor_seconds(best, least).value(), 1e-9);
  near(split_fsdp_seconds(best).value(), split_compute_seconds(best, least).value(), 1e-9);
  // Beyond the largest Y no batch hides tensor parallel.
  SplitInput wide = split;
  wide.fsdp = 2, wide.tensor = 32;
  CHECK(std::isinf(tokens_if_overlapped(wide).value()));
}

TEST_CASE("Korthikanti et al. 2022, figure 1: state and activations") {
  for (const Published& row : korthikanti) {
    CAPTURE(row.name);
    const Model model = find_model(row.name);
    const Plan none = plan_of(row, Recompute::none, false),
               selective = plan_of(row, Recompute::selective, true);
    // The figure counts the matrices of the blocks: 18 bytes for each of 12 L h^2 parameters.
    const double per_rank = block_matrices(model).value() * static_cast<double>(model.layers) /
                            static_cast<double>(8 * row.pp);
    near(state_of_model(per_rank, none.types).value() / gib, row.state_gib, 2e-4);
    CHECK(none.types.state() == 18);
    const auto activations = [&](const Plan& plan) {
      return blocks_in_flight(plan, pipeline_part(model, plan, 0)).value() *
             block_activations(model, plan).value() / gib;
    };
    near(activations(none), row.full_gib, 1e-4);
    near(activations(selective), row.selective_gib, 5e-4);
    // The same row of the account, and the state with embedding and biases: slightly more.
    const Account result = account(model, none, find_machine("a100"));
    const auto row_of = [&](const char* kind) {
      for (const MemoryRow& memory : result.stages.front().rows)
        if (memory.kind == kind) return memory.bytes / gib;
      return 0.0;
    };
    near(row_of("activations"), row.full_gib, 1e-4);
    const double state =
        row_of("parameters") + row_of("gradients") + row_of("masters") + row_of("optimizer state");
    CHECK(state > row.state_gib);
    near(state, row.state_gib, 0.09);
  }
}

TEST_CASE("Korthikanti et al. 2022, table 5: seconds, with an efficiency fitted on 22B alone") {
  Machine machine = find_machine("a100");
  const double fitted = efficiency_fitted_on_22b();
  // The machine file has the fitted value.
  near(machine.matmul_efficiency_by_width.back().efficiency, fitted, 0.01);
  scale_efficiencies(machine, fitted);
  for (const Published& row : korthikanti) {
    CAPTURE(row.name);
    const Model model = find_model(row.name);
    near(account(model, plan_of(row, Recompute::full, false), machine).step_seconds,
         row.full_seconds, 0.1);
    near(account(model, plan_of(row, Recompute::selective, true), machine).step_seconds,
         row.selective_seconds, 0.1);
  }
}

TEST_CASE("ZeRO, table 1: 7.5 billion parameters on 64 ranks") {
  const Model model = find_model("zero-7.5b");
  const std::array<double, 4> published = {120, 31.4, 16.6, 1.88};
  for (int stage = 0; stage < 4; ++stage) {
    CAPTURE(stage);
    const Plan plan{.mesh = MeshShape("dp=64"), .zero = stage};
    near(account(model, plan, find_machine("h100")).most_memory() / 1e9,
         published[static_cast<std::size_t>(stage)], 3e-3);
  }
}

TEST_CASE("Megatron, table 1: ten models") {
  const std::array<std::pair<const char*, double>, 10> published = {{{"megatron-1.7b", 1.7e9},
                                                                     {"megatron-3.6b", 3.6e9},
                                                                     {"megatron-7.5b", 7.5e9},
                                                                     {"megatron-18.4b", 18.4e9},
                                                                     {"megatron-39.1b", 39.1e9},
                                                                     {"megatron-76.1b", 76.1e9},
                                                                     {"megatron-145.6b", 145.6e9},
                                                                     {"megatron-310.1b", 310.1e9},
                                                                     {"megatron-529.6b", 529.6e9},
                                                                     {"megatron-1008b", 1008e9}}};
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    near(parameters_of(name), parameters, 0.03);
  }
  // 1T at 163 TFLOP/s, by F = 96 B s l h^2 (1 + s/6h + V/16lh).
  const Model model = find_model("megatron-1008b");
  const Plan plan{.mesh = MeshShape("pp=64,dp=6,tp=8"),
                  .micro_batch = 1,
                  .micro_batches = 512,
                  .sequence = 2048,
                  .recompute = Recompute::full};
  const double l = 128, h = 25600, s = 2048, vocabulary = 51200, batch = 3072;
  const double formula = 96 * batch * s * l * h * h * (1 + s / (6 * h) + vocabulary / (16 * l * h));
  CHECK(plan.batch() == 3072);
  near(hardware_flops(model, plan).value(), formula, 1e-12);
  near(step_at_speed(hardware_flops(model, plan).value(), 3072, 163e12), 102.6, 1e-3);
}

TEST_CASE("Megatron, section 5.1: days of training") {
  near(training_days(175e9, 300e9, 1024, 140e12), 33.9, 2e-3);
  near(training_days(1.008e12, 450e9, 3072, 163e12), 83.9, 1e-3);
}

TEST_CASE("Llama 3 405B: parameters, state, time of a step") {
  CHECK(parameters_of("llama3-405b") == 405'853'388'800);
  const Types types;
  const Quantity parameters("P", parameters_of("llama3-405b"));
  CHECK(types.state() == 16);
  near(state_of_model(parameters, types).value() / 1e12, 6.494, 1e-4);
  // Kaplan et al. 2020, section 2.1: 6 FLOPs per parameter and token.
  const double flops = 6 * parameters.value() * 16'777'216;
  near(step_at_speed(flops, 8192, 430e12), 11.60, 1e-3);
  near(step_at_speed(flops, 16384, 400e12), 6.23, 1e-3);
  // The mesh of table 4 divides the 126 blocks as the paper says: one fewer on the first and last.
  const Plan plan{.mesh = MeshShape("dp=64,pp=16,tp=8")};
  const Model model = find_model("llama3-405b");
  CHECK(pipeline_part(model, plan, 0).blocks == 7);
  CHECK(pipeline_part(model, plan, 1).blocks == 8);
  CHECK(pipeline_part(model, plan, 14).blocks == 8);
  CHECK(pipeline_part(model, plan, 15).blocks == 7);
}

TEST_CASE("MPT: parameters as MosaicML counts them") {
  const std::array<std::pair<const char*, double>, 9> published = {{{"mpt-125m", 125311488},
                                                                    {"mpt-350m", 355985408},
                                                                    {"mpt-760m", 760470528},
                                                                    {"mpt-1b", 1315950592},
                                                                    {"mpt-3b", 2651837440},
                                                                    {"mpt-7b", 6658859008},
                                                                    {"mpt-13b", 12853954560},
                                                                    {"mpt-30b", 29975214080},
                                                                    {"mpt-70b", 64862437376}}};
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    near(parameters_of(name), parameters, 1e-3);  // the biases
  }
}

TEST_CASE("DeepSeek-V3: parameters, with the router's bias") {
  CHECK(parameters_of("deepseek-v3") == 671'026'419'200);
}

TEST_CASE("models with experts: parameters, and those that compute a token") {
  const auto check = [](const char* name, double all, double active) {
    CAPTURE(name);
    const Model model = find_model(name);
    near(parameter_count(model).back().value(), all, 2e-3);
    near(active_parameters(model).value(), active, 2e-3);
  };
  check("mixtral-8x7b", 46.70e9, 12.88e9);  // Jiang et al. 2024: 47B and 13B
  check("qwen3-30b-a3b", 30.53e9, 3.35e9);  // Qwen3 2025: 30.5B and 3.3B
  check("deepseek-v3", 671.03e9, 37.55e9);  // DeepSeek-V3 2024: 671B and 37B
  const auto config = ringside::transformer::named_config("moe-tiny");
  const Model tiny = find_model("moe-tiny");
  CHECK(parameter_count(tiny).back().value() == ringside::transformer::parameter_count(config));
  CHECK(active_parameters(tiny).value() == ringside::transformer::active_parameter_count(config));
}

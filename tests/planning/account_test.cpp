// The parts of an account: bytes of each axis, blocks in flight, bubbles, times, and --fit.
#include "planning/account.hpp"

#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "planning/fit.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/pipeline.hpp"
#include "planning/simulation/simulation.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::planning;

namespace {

// L = 12, d = 48: every figure can be checked by hand.
Model small_model() {
  Model model;
  model.name = "small", model.vocabulary = 256, model.d_model = 48, model.layers = 12;
  model.heads = model.kv_heads = 12, model.head_size = 4, model.d_ff = 128, model.sequence = 64;
  return model;
}

Plan plan_on(const char* mesh) {
  return {.mesh = planned_mesh(mesh),
          .micro_batch = 2,
          .micro_batches = 4,
          .sequence = 64,
          .types = {.parameters = 4, .gradients = 4, .activations = 4}};
}

Account account_of(const Plan& plan) {
  return account(small_model(), plan, find_machine("h100"));
}

// Of all entries of an axis.
struct Sums {
  double calls = 0, bytes = 0, seconds = 0, hidden = 0;
};
Sums sums_of(const Account& account, const char* axis) {
  Sums sums;
  for (const AxisTraffic& each : account.traffic)
    if (each.axis == axis)
      sums.calls += each.calls, sums.bytes += each.bytes, sums.seconds += each.seconds,
          sums.hidden += each.hidden;
  return sums;
}

constexpr double tokens = 128, stream = tokens * 48 * 4;  // T, and T d e
constexpr double block = 4 * 48 * 48 + 3 * 48 * 128 + 2 * 48, table = 256 * 48;

}  // namespace

TEST_CASE("tensor parallel sends m L 8 (t-1)/t T d e, and its edges") {
  for (const int t : {2, 3, 4}) {
    CAPTURE(t);
    Plan plan = plan_on(fmt::format("tp={}", t).c_str());
    plan.micro_batches = 3;
    // t = 3 does not divide d_ff = 128.
    if (t == 3) {
      CHECK_THROWS_WITH(account_of(plan), "d_ff 128 of small does not divide by tp=3");
      continue;
    }
    const double part = (t - 1.0) / t;
    // Embedding and head: one all-reduce each. Cross-entropy: three fp32 numbers a token.
    const double edges = 2 * 2 * part * stream + 2 * part * 3 * 4 * tokens;
    CHECK(sums_of(account_of(plan), "tp").bytes == 3 * (12 * 8 * part * stream + edges));
    CHECK(sums_of(account_of(plan), "tp").calls == 3 * (12 * 4 + 5));
    plan.recompute = Recompute::full;
    CHECK(sums_of(account_of(plan), "tp").bytes == 3 * (12 * 12 * part * stream + edges));
    plan.recompute = Recompute::none, plan.sequence_parallel = true;
    // Once a step: the gradients of 25 norms.
    CHECK(sums_of(account_of(plan), "tp").bytes ==
          3 * (12 * 10 * part * stream + edges) + 2 * part * 25 * 48 * 4);
  }
}

TEST_CASE("expert parallel sends 4 K T d e (n-1)/n in a block, and gradients of all but experts") {
  Model model = small_model();
  model.experts = Experts{.routed = 8, .per_token = 2, .d_ff = 128};
  const double attention = 4 * 48 * 48 + 2 * 48 + 8 * 48, expert = 3 * 48 * 128;
  for (const int n : {2, 4, 8}) {
    CAPTURE(n);
    const Plan plan = plan_on(fmt::format("ep={}", n).c_str());
    const Account result = account(model, plan, find_machine("h100"));
    const double shared = 12 * attention + 2 * table + 48, share = (n - 1.0) / n;
    CHECK(result.parameters == 12 * 8 * expert + shared);
    CHECK(result.active_parameters == 12 * 2 * expert + shared);
    CHECK(result.stages[0].of(ringside::autograd::MemoryKind::parameters) ==
          doctest::Approx(4 * (12 * 8.0 / n * expert + shared)));
    CHECK(sums_of(result, "ep").calls == 4 * 12 * 5 + 1);
    CHECK(sums_of(result, "ep").bytes ==
          doctest::Approx(4 * 12 * (4 * 2 * stream + 8 * 8) * share + 2 * 4 * shared * share));
    CHECK(result.tokens == 4 * n * tokens);
    // With tensor parallel the K rows of a token are added up, and not one.
    const Account both =
        account(model, plan_on(fmt::format("ep={},tp=2", n).c_str()), find_machine("h100"));
    CHECK(sums_of(both, "tp").bytes ==
          doctest::Approx(4 * (12 * 4 * 1.5 * stream + 2 * stream + 12 * tokens)));
  }
  CHECK_THROWS_WITH(account(model, plan_on("ep=3"), find_machine("h100")),
                    "the 8 experts of small do not divide by ep=3");
  CHECK_THROWS_WITH(account_of(plan_on("ep=2")),
                    "ep divides experts, and small has none: leave out ep");
}

TEST_CASE("data parallel sends 2 (n-1)/n of the gradients, ZeRO sends them by stage") {
  const double n = 4, part = 3.0 / 4, all = 12 * block + 2 * table + 48;
  Plan plan = plan_on("dp=4");
  CHECK(sums_of(account_of(plan), "dp").bytes ==
        doctest::Approx(2 * part * all * 4).epsilon(1e-12));
  plan.zero = 1;
  CHECK(sums_of(account_of(plan), "dp").bytes ==
        doctest::Approx(2 * part * all * 4).epsilon(1e-12));
  plan.zero = 2;  // four micro-batches are reduced, the parameters are gathered once
  CHECK(sums_of(account_of(plan), "dp").bytes ==
        doctest::Approx(5 * part * all * 4).epsilon(1e-12));
  // Stage 3: each micro-batch gathers all for forward and the blocks for backward, and reduces all.
  const double units = 4 * part * 4 * (2 * all + 12 * block);
  plan.zero = 3;
  CHECK(sums_of(account_of(plan), "dp").bytes == doctest::Approx(units).epsilon(1e-12));
  const Account sharded = account_of(plan_on("fsdp=4"));
  CHECK(sums_of(sharded, "fsdp").bytes == doctest::Approx(units).epsilon(1e-12));
  CHECK(sums_of(sharded, "fsdp").calls == 4 * (3 * 12 + 2 * 2));
  // The state of a rank.
  const auto& rows = sharded.stages.front().rows;
  CHECK(rows[0].bytes == doctest::Approx(4 * all / n).epsilon(1e-12));
  REQUIRE(rows[2].kind == "optimizer state");
  CHECK(rows[2].bytes == doctest::Approx(8 * all / n).epsilon(1e-12));
}

TEST_CASE("pipeline parallel sends m T d e over each boundary and in each direction") {
  // A rank sends to each neighbour of its stages: at the edges of the pipeline one is missing.
  const auto bytes = [](const Plan& plan, double per_rank) {
    const Account result = account_of(plan);
    const bool is_edge = result.busiest == 0 || result.busiest == 3;
    return sums_of(result, "pp").bytes == (is_edge ? per_rank - 1 : per_rank) * 4 * stream;
  };
  Plan plan = plan_on("pp=4");
  CHECK(account_of(plan).busiest == 3);  // with the head
  CHECK(bytes(plan, 2));
  plan.schedule = "interleaved", plan.chunks = 3;
  CHECK(bytes(plan, 3 * 2));
  // At the turn of the V two stages of a rank need no message.
  plan.schedule = "zb_v", plan.chunks = 2;
  CHECK(account_of(plan).busiest == 3);
  CHECK(sums_of(account_of(plan), "pp").bytes == 2 * 4 * stream);
  Plan both = plan_on("pp=4,tp=2");
  both.sequence_parallel = true;
  CHECK(sums_of(account_of(both), "pp").bytes == 4 * stream / 2);
}

// Llama 3 (Grattafiori et al. 2024, section 3.3.2): 126 blocks on 16 ranks, interleaved; the first
// and the last stage have one block less.
TEST_CASE("stages of unequal length: the published plan of Llama 3 405B") {
  const Model model = find_model("llama3-405b");
  Plan plan{.mesh = planned_mesh("pp=16,tp=8"), .schedule = "interleaved", .micro_batches = 16};
  for (const std::int64_t chunks : {1, 4, 8}) {
    CAPTURE(chunks);
    plan.chunks = chunks;
    validate(plan, model);
    double blocks = 0;
    for (const std::int64_t rank : {0, 1, 7, 14, 15}) {
      const PipelinePart part = pipeline_part(model, plan, rank);
      CHECK(part.blocks == (rank == 0 || rank == 15 ? 7 : 8));
      blocks += part.blocks;
    }
    CHECK(blocks == 38);
  }
}

TEST_CASE("a schedule from a file with several stages per rank") {
  const TemporaryDirectory directory;
  const Model model = small_model();
  Plan plan = plan_on("pp=4");
  plan.schedule = "interleaved", plan.chunks = 3;
  const auto made = pipeline_parallel::make_schedule("interleaved", 4, 4, 3);
  Plan from_file = plan;
  from_file.schedule = "csv:" + directory.write("own.csv", csv_of(made)).string();
  from_file.chunks = 1;
  CHECK(placement_of(from_file) == placement_of(plan));
  const Account named = account_of(plan), read = account_of(from_file);
  CHECK(read.most_memory() == named.most_memory());
  CHECK(sums_of(read, "pp").bytes == sums_of(named, "pp").bytes);
  CHECK(read.bubble_share == doctest::Approx(named.bubble_share));
  const Machine machine = find_machine("h100");
  CHECK(simulate(model, from_file, machine).step ==
        doctest::Approx(simulate(model, plan, machine).step));
  from_file.micro_batches = 8;
  CHECK_THROWS_WITH(account_of(from_file),
                    doctest::Contains("is a schedule of 4 micro-batches, not of 8"));
  from_file.micro_batches = 4, from_file.mesh = planned_mesh("pp=2");
  CHECK_THROWS_WITH(account_of(from_file), doctest::Contains("is a schedule for 4 ranks"));
}

TEST_CASE("an axis uses the innermost network that holds its group") {
  // The groups of pp span all 64 devices, those of tp 8 neighbours.
  const Account result = account_of(plan_on("pp=2,dp=8,tp=4"));
  for (const AxisTraffic& each : result.traffic)
    CHECK(each.level == (each.axis == "tp" ? "NVLink" : "InfiniBand"));
  for (const AxisTraffic& each : account_of(plan_on("tp=4,dp=2")).traffic)
    CHECK(each.level == "NVLink");
}

TEST_CASE("blocks in flight, by schedule and stage") {
  const Model model = small_model();
  Plan plan = plan_on("pp=4");
  plan.micro_batches = 8;
  const auto held = [&](std::int64_t stage) {
    return blocks_in_flight(plan, pipeline_part(model, plan, stage)).value();
  };
  for (const std::int64_t stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    plan.schedule = "gpipe";
    CHECK(held(stage) == 3 * 8);
    plan.schedule = "1f1b";
    CHECK(held(stage) == 3.0 * static_cast<double>(4 - stage));
    // I frees nothing, so every rank holds as many as the first one.
    plan.schedule = "zb_h1";
    CHECK(held(stage) == 3 * 4);
  }
  plan.schedule = "interleaved", plan.chunks = 3;
  CHECK(held(0) == (3 + 1) * 4 - 1);  // chunks of one block
  CHECK(held(0) == doctest::Approx(12 * (1 + 3.0 / (4 * 3))));
  plan.schedule = "1f1b", plan.chunks = 1, plan.micro_batches = 2;
  CHECK(held(0) == 3 * 2);
  // What is in flight grows with the micro-batches of gpipe, and of no other: also where they are
  // too many to be listed.
  plan.micro_batches = 1'000'000'000;
  CHECK(held(0) == 3 * 4);
  plan.schedule = "gpipe";
  CHECK(held(0) == 3e9);
}

TEST_CASE("bubbles in closed form") {
  Plan plan = plan_on("pp=4");
  plan.micro_batches = 8;
  const auto share = [&] { return bubble_share(plan).value(); };
  CHECK(share() == 3.0 / 11);
  plan.schedule = "gpipe";
  CHECK(share() == 3.0 / 11);
  plan.schedule = "zb_h1";
  CHECK(share() == 1.0 / 9);  // (p - 1) (F + I - W) with F = I = W
  plan.schedule = "zb_v";
  CHECK(share() == 0.5 / 8.5);  // (p - 1) F, of stages half as long, with F = I = W
  plan.schedule = "interleaved", plan.chunks = 3;
  CHECK(share() == doctest::Approx(3.0 / (3 * 8 + 3)).epsilon(1e-12));
  CHECK(bubble_seconds(plan, 2).value() == 2);
}

TEST_CASE("the parts of a step add up to the step, and the largest of them binds") {
  for (const char* mesh : {"", "dp=4", "fsdp=4", "tp=4", "pp=4", "pp=2,dp=2,tp=2"}) {
    CAPTURE(mesh);
    const Account result = account_of(plan_on(mesh));
    double sum = 0, largest = 0;
    for (const TimeRow& row : result.time) {
      CHECK(row.seconds >= 0);
      sum += row.seconds, largest = std::max(largest, row.seconds);
    }
    CHECK(sum == doctest::Approx(result.step_seconds).epsilon(1e-9));
    CHECK(result.binds().seconds == largest);
    CHECK(result.utilization > 0);
    CHECK(result.utilization < 1);
  }
  // Tiny blocks in fp32 over a slow network: communication binds.
  Machine slow = find_machine("h100");
  for (Level& level : slow.levels) level.bytes_per_second = 1e6;
  const Account result = account(small_model(), plan_on("dp=4"), slow);
  CHECK(result.binds().part == "dp communication, exposed");
}

TEST_CASE("communication hides as far as it fits behind computing, and tensor parallel's never") {
  Machine slow = find_machine("h100");
  for (Level& level : slow.levels) level.bytes_per_second = 1e6;
  const auto value_of = [](const Account& from, const char* symbol) {
    for (const Section& section : from.derivation)
      for (const Term& term : section.terms)
        if (term.symbol == symbol) return term.value();
    return 0.0;
  };
  const Account data = account(small_model(), plan_on("dp=4"), slow);
  // Backward of the last micro-batch is two thirds of its time.
  CHECK(sums_of(data, "dp").hidden == doctest::Approx(value_of(data, "t_stage") * 2 / 3));
  const Account sharded = account(small_model(), plan_on("fsdp=4"), slow);
  // Of four micro-batches, three kinds of calls, each behind a third of the time. Of 12 blocks, 11
  // hide the gather of the next one in backward; in forward the last hides that of the head.
  CHECK(sums_of(sharded, "fsdp").hidden ==
        doctest::Approx(4 * value_of(sharded, "t_stage") / 3 * (1 + 11.0 / 12 + 1)));
  CHECK(sums_of(account(small_model(), plan_on("tp=4"), slow), "tp").hidden == 0);
  // A fast network hides everything but the calls that no block runs beside.
  Machine fast = find_machine("h100");
  for (Level& level : fast.levels) level.bytes_per_second = 1e15, level.latency = 0;
  for (const AxisTraffic& each : account(small_model(), plan_on("dp=4"), fast).traffic)
    CHECK(each.exposed() == 0);
  std::vector<double> shares;
  for (const AxisTraffic& each : account(small_model(), plan_on("fsdp=4"), fast).traffic)
    shares.push_back(std::round(each.exposed() / each.seconds * each.calls / 4));
  CHECK(shares == std::vector<double>{2, 1, 2});  // of 14, 12 and 14 in each micro-batch
}

TEST_CASE("every figure of the memory table is in the derivation") {
  const Account result = account_of(plan_on("pp=2,dp=2,tp=2"));
  for (const RankMemory& stage : result.stages)
    for (const MemoryRow& row : stage.rows) {
      CAPTURE(row.kind);
      bool found = false;
      for (const Section& section : result.derivation)
        for (const Term& term : section.terms)
          found = found || (term.unit == Unit::bytes && term.value() == row.bytes);
      CHECK(found);
    }
}

TEST_CASE("--fit finds meshes that fit, the fastest first, and drops those that do not") {
  const Machine h100 = find_machine("h100");
  const Fit found =
      fit(find_model("llama3-8b"), h100, {.devices = 16, .batch = 16, .sequence = 8192});
  REQUIRE(found.accounts.size() >= 3);
  for (std::size_t i = 0; i < found.accounts.size(); ++i) {
    const Account& each = found.accounts[i];
    CHECK(each.fits());
    CHECK(each.plan.mesh.ranks() == 16);
    CHECK(each.plan.batch() == 16);
    CHECK(each.plan.mesh.size(Axis::tp) <= 8);
    if (i > 0) CHECK(each.step_seconds >= found.accounts[i - 1].step_seconds);
    for (std::size_t j = 0; j < i; ++j) CHECK(each.plan.mesh != found.accounts[j].plan.mesh);
  }
  // Every schedule of a pipeline is tried: the one that is kept takes no longer than 1f1b.
  bool has_pipeline = false;
  for (const Account& each : found.accounts) {
    if (each.plan.mesh.size(Axis::pp) == 1) continue;
    has_pipeline = true;
    CAPTURE(each.plan.mesh.text());
    CHECK(each.plan.schedule != "gpipe");
    Plan plain = each.plan;
    plain.schedule = "1f1b", plain.chunks = 1;
    CHECK(each.step_seconds < account(find_model("llama3-8b"), plain, h100).step_seconds);
  }
  CHECK(has_pipeline);
  // A device without memory fits nothing; the least that any plan needs is named.
  Machine empty = h100;
  empty.memory = 1e9;
  const Fit none =
      fit(find_model("llama3-8b"), empty, {.devices = 16, .batch = 16, .sequence = 8192});
  CHECK(none.accounts.empty());
  CHECK(none.least_memory > 1e9);
  CHECK(none.tried == found.tried);
  // 70B in 18 or 16 bytes a parameter does not fit 8 devices of 80 GB: 1.1 TB in 640 GB.
  CHECK(fit(find_model("llama3-70b"), h100, {.devices = 8, .batch = 8}).accounts.empty());
}

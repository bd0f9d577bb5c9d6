// What `ringside train` checks for before a run, within 5 % of the ledger of every rank.
//
// Every mesh of 2, 4 and 8 ranks, with every schedule, stage of ZeRO, recomputation and division of
// sequences that it may have, if RINGSIDE_WHOLE_TABLE=1; otherwise a fixed sample. With
// RINGSIDE_LEDGER=FILE what the ranks had and sent is written as JSON: tests/python/ledger_test.py
// compares it with the planner in Python.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "base/json.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "tests/training/mesh/mesh_check.hpp"

using namespace ringside;
using namespace ringside::testing;
using autograd::MemoryKind;

namespace {

// Wide enough that activations outweigh counters and padding.
constexpr std::int64_t sequence = 64, batch = 16;
Config small() {
  return {.vocabulary = 512,
          .d_model = 64,
          .layers = 9,
          .heads = 8,
          .kv_heads = 4,
          .d_ff = 176,
          .sequence = sequence,
          .tied_head = false};
}

// Four experts, of which a token takes two: about equally many take each.
Config small_experts() {
  Config config = small();
  config.experts = 4, config.experts_per_token = 2, config.d_ff = 88;
  return config;
}

struct Case {
  MeshCase mesh;
  bool recompute = false;
  bool has_experts = false;
  Config config() const { return has_experts ? small_experts() : small(); }
};

training::TrainerOptions options_of(const Case& each) {
  training::TrainerOptions options;
  options.steps = 2, options.batch = batch, options.sequence = sequence;
  options.accumulate = each.mesh.micro_batches;
  options.recompute = {each.recompute ? 1 : 0};
  options.optimizer = training::OptimizerKind::adamw;
  return options;
}

std::string text_of(const Case& each) {
  return fmt::format("{} {} {}{}{} m={}", each.mesh.mesh, each.mesh.inner, each.mesh.schedule,
                     each.mesh.sequence_parallel ? " sp" : "", each.recompute ? " again" : "",
                     each.mesh.micro_batches);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string mesh :
       {"dp=2", "tp=2", "pp=2", "dp=4", "tp=4", "pp=4", "dp=2,tp=2", "pp=2,tp=2", "pp=2,dp=2",
        "dp=8", "tp=8", "pp=8", "dp=4,tp=2", "dp=2,tp=4", "pp=4,tp=2", "pp=2,tp=4", "pp=4,dp=2",
        "pp=2,dp=4", "pp=2,dp=2,tp=2"}) {
    const parallel::MeshShape shape(mesh);
    const int p = shape.size(Axis::pp), t = shape.size(Axis::tp), n = shape.size(Axis::dp);
    std::vector<std::string> inner = {"single"};
    if (n > 1) inner = {"bucketed", "zero1", "zero2", "zero3"};
    for (const std::string& schedule : p > 1 ? schedules : std::vector<std::string>{"1f1b"}) {
      if (pipeline_parallel::make_schedule(schedule, p, p).stages() > 9)
        continue;  // more than layers
      const std::int64_t m = p > 1 ? std::min<std::int64_t>(p, batch / n) : 2;
      for (const std::string& strategy : inner)
        for (const bool sequence_parallel : {false, true})
          for (const bool recompute : {false, true})
            if (t > 1 || !sequence_parallel)
              cases.push_back({{mesh, strategy, sequence_parallel, schedule, m}, recompute});
    }
  }
  for (const std::string mesh : {"cp=2", "cp=4", "dp=2,cp=2", "cp=2,tp=2", "ep=2", "ep=4",
                                 "dp=2,ep=2", "ep=2,tp=2", "pp=2,ep=2"})
    for (const bool recompute : {false, true}) {
      const std::string inner = mesh.starts_with("pp") ? "single" : "bucketed";
      const bool has_experts = mesh.find("ep=") != std::string::npos;
      cases.push_back({{mesh, inner, false, "1f1b", 2}, recompute, has_experts});
    }
  return cases;
}

// What one rank had at its peak, and sent in a step.
struct Seen {
  std::map<MemoryKind, double> memory;
  double peak = 0;
  std::map<Axis, double> sent;
};

std::vector<Seen> run(const Case& each) {
  std::vector<Seen> seen(static_cast<std::size_t>(parallel::MeshShape(each.mesh.mesh).ranks()));
  collectives::GroupOptions ring;
  ring.algorithms =
      collectives::AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring");
  on_mesh(
      each.mesh, each.config(),
      [&](auto given, auto& world) {
        Model model(each.config(), DType::fp32, autograd::Device::cpu, given->part(),
                    given->model_ranks());
        const auto strategy = std::move(given);  // destroyed before the model
        Trainer trainer(model, mesh_corpus(), *strategy, options_of(each));
        trainer.step();
        autograd::reset_peak_memory();
        const auto before = strategy->bytes_sent_by_axis();
        trainer.step();
        Seen& mine = seen[static_cast<std::size_t>(world.rank())];
        for (const auto& [axis, bytes] : strategy->bytes_sent_by_axis())
          mine.sent[axis] = static_cast<double>(bytes - before.at(axis));
        mine.peak = static_cast<double>(autograd::memory_use().peak);
        for (const MemoryKind kind : autograd::all_memory_kinds)
          mine.memory[kind] = static_cast<double>(autograd::memory_use(kind).peak);
      },
      ring);
  return seen;
}

// The most messages of a rank that are posted and not used yet, and one that it sends.
int most_messages(const pipeline_parallel::Schedule& lowered) {
  int most = 0;
  for (const auto& actions : lowered.actions) {
    int posted = 0;
    for (const pipeline_parallel::Action& action : actions) {
      if (is_receive(action.kind)) most = std::max(most, ++posted);
      if (receive_before(lowered, action)) --posted;
    }
  }
  return most + 1;
}

// Sequences of a micro-batch on one rank.
std::int64_t micro_batch_of(const Case& each, const training::MeshPlan& mesh) {
  return batch / (mesh.data_ranks() * each.mesh.micro_batches);
}

// What may be there or not when a rank has its peak, because it depends on how fast other ranks
// are: messages, buckets or units of gradients that are being reduced. The check counts all buckets
// and no message.
double depends_on_time(const Case& each, const training::MeshPlan& mesh) {
  const Config config = each.config();
  const double e = 4, t = mesh.shape.size(Axis::tp), d = static_cast<double>(config.d_model);
  const double kv = static_cast<double>(config.kv_heads * config.head_size()),
               tokens = static_cast<double>(sequence * micro_batch_of(each, mesh)) /
                        mesh.shape.size(Axis::cp),
               edge = e * static_cast<double>(config.vocabulary) * d / t,
               block =
                   (2 * d * d + 2 * d * kv + 3 * d * static_cast<double>(config.d_ff)) / t + 2 * d;
  double bytes = 0;
  if (mesh.shape.size(Axis::pp) > 1)
    bytes = most_messages(mesh.schedule) * tokens * d * e / (mesh.sequence_parallel ? t : 1);
  if (each.mesh.inner == "zero2") bytes += 2 * 1e6 * bucket_mb + edge;
  if (each.mesh.inner == "zero3") bytes += 2 * e * block + edge;
  return bytes;
}

// The case, with what each of its ranks had at its peak and sent in a step, in bytes.
Json ledger_of(const Case& each, const training::MeshPlan& mesh, const std::vector<Seen>& seen) {
  const int stages = mesh.schedule.stages();
  Json json = {{"case", text_of(each)},
               {"mesh", mesh.shape.text()},
               {"strategy", each.mesh.inner},
               {"schedule", stages > 0 ? mesh.schedule_name : "1f1b"},
               {"chunks", stages > 0 ? stages / mesh.schedule.ranks() : 1},
               {"micro_batches", each.mesh.micro_batches},
               {"micro_batch", micro_batch_of(each, mesh)},
               {"exchange", name_of(mesh.context.exchange)},
               {"token_order", name_of(mesh.context.order)},
               {"recompute", each.recompute},
               {"sequence_parallel", mesh.sequence_parallel},
               {"experts", each.has_experts},
               {"gradient_copies",
                training::gradient_copies(each.mesh.inner, DType::fp32,
                                          mesh.shape.size(Axis::dp) * mesh.shape.size(Axis::cp))},
               {"bucket_bytes", 1e6 * bucket_mb},
               {"ranks", Json::array()}};
  for (const Seen& rank : seen) {
    Json sent = Json::object();
    for (const auto& [axis, bytes] : rank.sent) sent[name_of(axis)] = bytes;
    json["ranks"].push_back({{"parameters", rank.memory.at(MemoryKind::parameters)},
                             {"optimizer_state", rank.memory.at(MemoryKind::optimizer_state)},
                             {"peak", rank.peak},
                             {"sent", sent}});
  }
  return json;
}

// The worst of all cases, for the page.
struct Furthest {
  double ratio = 1;
  std::string text = "none";
  void look_at(double said, double seen, const std::string& what) {
    if (std::abs(said / seen - 1) <= std::abs(ratio - 1)) return;
    ratio = said / seen, text = what;
  }
};

std::string kind_of(const Case& each) {
  return each.has_experts ? "experts" : each.mesh.inner;
}

}  // namespace

TEST_CASE("what train checks before a run is what the run keeps") {
  const bool whole = std::getenv("RINGSIDE_WHOLE_TABLE") != nullptr;
  const std::vector<Case> cases = all_cases();
  std::map<std::string, Furthest> worst;  // by strategy
  Json ledgers = Json::array();
  int runs = 0;
  for (std::size_t i = 0; i < cases.size(); i += whole ? 1 : 11) {
    if (!mesh_cases.takes()) continue;
    const Case& each = cases[i];
    CAPTURE(text_of(each));
    const training::MeshPlan mesh = each.mesh.plan();
    const auto seen = run(each);
    ledgers.push_back(ledger_of(each, mesh, seen));
    const double slack = depends_on_time(each, mesh);
    for (int rank = 0; rank < mesh.shape.ranks(); ++rank) {
      CAPTURE(rank);
      const int pp = mesh.shape.coordinate(rank, Axis::pp);
      const Seen& mine = seen[static_cast<std::size_t>(rank)];
      const auto need = need_of(each.mesh, each.config(), DType::fp32, options_of(each), pp);
      const double near = each.has_experts ? 0.08 : 0.05;
      CHECK(need.peak >= (1 - near) * mine.peak - slack);
      CHECK(need.peak <= (1 + near) * mine.peak + slack);
      const std::string kind = kind_of(each) + (each.recompute ? ", recomputation" : "");
      worst[kind].look_at(need.peak, mine.peak, text_of(each));
    }
    ++runs;
  }
  if (const char* const file = std::getenv("RINGSIDE_LEDGER"))
    std::ofstream(file) << ledgers.dump() << "\n";
  if (!whole) return;
  fmt::print("{} runs. The furthest check, as a share of what was measured:\n", runs);
  for (const auto& [kind, each] : worst)
    fmt::print("{:<26}{:.3f}  {}\n", kind, each.ratio, each.text);
}

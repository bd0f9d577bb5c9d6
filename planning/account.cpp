#include "planning/account.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/communication.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/pipeline.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/work.hpp"
#include "planning/trainer_memory.hpp"

namespace ringside::planning {
namespace {

// Fills an Account, section by section. Every number of it is the value of a term on the
// blackboard.
class Accountant {
 public:
  explicit Accountant(Account& account)
      : account_(account),
        model_(account.model),
        plan_(account.plan),
        machine_(account.machine),
        t_("t", static_cast<double>(plan_.mesh.size("tp"))),
        m_("m", static_cast<double>(plan_.micro_batches)),
        shards_(shards_of(plan_)) {}

  void parameters();
  void memory();
  void work();
  void traffic();
  void time();

 private:
  void section(const std::string& title) { account_.blackboard.push_back({title, {}}); }
  // Writes a term on the blackboard.
  Term put(Term term) {
    account_.blackboard.back().terms.push_back(term);
    return term;
  }

  bool is_first(std::int64_t stage) const { return stage == 0; }
  bool is_last(std::int64_t stage) const { return stage == plan_.mesh.size("pp") - 1; }
  // The stage whose work takes longest: the last one has the head, others may have more blocks.
  std::int64_t busiest_stage() const;
  Quantity stage_parameters(std::int64_t stage) const;
  Term whole_block() const;
  StageMemory memory_of(const std::string& name, std::int64_t stage);
  Term trainer_overhead(double even) const;

  // Bytes and calls along an axis, in one step; the time follows from its level.
  void add(const char* axis, const char* what, const Quantity& calls, double messages,
           const Term& bytes, double hidden_behind, double share = 1);
  void tensor_traffic(std::int64_t stage);
  void data_traffic(std::int64_t stage);
  void sharded_traffic(std::int64_t stage);
  void pipeline_traffic();
  Level level_along(const char* axis) const;

  Account& account_;
  const Model& model_;
  const Plan& plan_;
  const Machine& machine_;
  const Quantity t_, m_;
  const Shards shards_;
  double stage_seconds_ = 0;  // of one micro-batch on the busiest stage, without communication
};

void Accountant::parameters() {
  section("Parameters");
  for (const Term& term : parameter_count(model_)) account_.parameters = put(term).value();
  account_.state_bytes =
      put(state_of_model(Quantity("P", account_.parameters), plan_.types)).value();
}

// A block on one rank: matrices divided by tensor parallel, vectors whole.
Term Accountant::whole_block() const {
  return {"P_block", "parameters of a block on one rank",
          block_matrices(model_) / t_ + block_vectors(model_), Unit::number,
          "Shoeybi et al. 2019 (Megatron-LM), section 3"};
}

Quantity Accountant::stage_parameters(std::int64_t stage) const {
  return planning::stage_parameters(
      model_, t_,
      Quantity("L_stage", static_cast<double>(blocks_of_stage(model_, plan_, stage))) *
          whole_block(),
      is_first(stage), is_last(stage));
}

StageMemory Accountant::memory_of(const std::string& name, std::int64_t stage) {
  section(fmt::format("Memory of a rank, {} stage", name));
  StageMemory memory{name, stage, {}};
  const auto bytes_of = [](double sum, const MemoryRow& row) { return sum + row.bytes; };
  const auto row = [&](const char* kind, const Term& term) {
    const double bytes = put(term).value();
    if (bytes > 0) memory.rows.push_back({kind, bytes});
  };
  const Term held =
      put(model_.has_blocks() ? Term{"P_stage", "parameters of the stage, on one rank",
                                     stage_parameters(stage), Unit::number, "sum of its parts"}
                              : Term{"P_stage", "all parameters",
                                     Quantity("P", account_.parameters), Unit::number, ""});
  row("parameters", parameter_bytes(held, plan_.types, shards_.parameters));
  row("gradients", gradient_bytes(held, plan_.types, shards_.gradients));
  row("masters", master_bytes(held, plan_.types, shards_.optimizer));
  row("optimizer state", moment_bytes(held, plan_.types, shards_.optimizer));
  if (!model_.has_blocks()) return memory;
  if (model_.own && stage == 0 && is_last(stage) && plan_.types.state() == 16 &&
      plan_.types.parameters == 4) {
    const double even = std::accumulate(memory.rows.begin(), memory.rows.end(), 0.0, bytes_of);
    row("padding, counters", trainer_overhead(even));
  }
  if (shards_.parameters > 1) {
    const Term block = put(whole_block());
    const Quantity largest =
        is_last(stage) && model_.vocabulary > 0 ? max(block, embedding(model_) / t_) : block;
    row("gathered units", gathered_units(block, largest, plan_.types));
  }
  const Term each = put(block_activations(model_, plan_)),
             blocks = put(blocks_in_flight(model_, plan_, stage));
  row("activations", {"A", "activations of the blocks", blocks * each, Unit::bytes,
                      "blocks in flight, each with its activations"});
  const Term working = put(working_memory(model_, plan_));
  if (!is_last(stage)) {
    row("working memory", {"A_peak", "while backward runs", working, Unit::bytes, ""});
    return memory;
  }
  const Term at_head = put(head_activations(model_, plan_));
  row("working memory", {"A_peak", "while backward runs: at the head, or in a block",
                         max(at_head, working), Unit::bytes, "transformer/memory.cpp"});
  return memory;
}

// What Ringside's trainer keeps beyond an even division.
Term Accountant::trainer_overhead(double even) const {
  const std::int64_t ranks = plan_.mesh.data_ranks();
  const int zero = plan_.mesh.size("fsdp") > 1 ? 3 : ranks > 1 ? plan_.zero : 0;
  const Quantity kept("M_trainer",
                      static_cast<double>(trainer_memory(*model_.own, zero, ranks, 0).total()));
  return {"M_padding", "padding of shards, and AdamW's step counts",
          max(0, kept - Quantity("M_even", even)), Unit::bytes, "planning/trainer_memory.hpp"};
}

void Accountant::memory() {
  const std::int64_t stages = plan_.mesh.size("pp");
  if (stages == 1) {
    account_.stages.push_back(memory_of("only", 0));
    return;
  }
  account_.stages.push_back(memory_of("first", 0));
  if (stages > 2) account_.stages.push_back(memory_of("middle", 1));
  account_.stages.push_back(memory_of("last", stages - 1));
}

std::int64_t Accountant::busiest_stage() const {
  const std::int64_t stages = plan_.mesh.size("pp");
  const auto seconds = [&](std::int64_t stage) {
    return static_cast<double>(blocks_of_stage(model_, plan_, stage)) *
               block_seconds(model_, plan_, machine_).value() +
           (is_last(stage) ? head_seconds(model_, plan_, machine_).value() : 0);
  };
  std::int64_t busiest = stages - 1;
  for (const std::int64_t stage : {std::int64_t{0}, std::min<std::int64_t>(1, stages - 1)})
    if (seconds(stage) > seconds(busiest)) busiest = stage;
  return busiest;
}

void Accountant::work() {
  section("Computing");
  put(block_forward_flops(model_, plan_));
  put(head_forward_flops(model_, plan_));
  put(block_recomputed_flops(model_, plan_));
  account_.model_flops = put(model_flops(model_, plan_)).value();
  account_.hardware_flops = put(hardware_flops(model_, plan_)).value();
  put(scores_traffic(model_, plan_));
  put(block_forward_traffic(model_, plan_));
  put(block_traffic(model_, plan_));
  const Term block = put(block_seconds(model_, plan_, machine_)),
             head = put(head_seconds(model_, plan_, machine_));
  const std::int64_t stage = busiest_stage();
  const Quantity blocks("L_stage", static_cast<double>(blocks_of_stage(model_, plan_, stage)));
  const bool has_head = is_last(stage) && model_.vocabulary > 0;
  stage_seconds_ = put({"t_stage", "one micro-batch on the busiest stage",
                        has_head ? blocks * block + head : blocks * block, Unit::seconds, ""})
                       .value();
}

// The network that joins the ranks of an axis.
Level Accountant::level_along(const char* axis) const {
  const std::int64_t span = plan_.mesh.span(axis);
  return machine_.level_along(machine_.level_index_for(span), span / plan_.mesh.size(axis));
}

void Accountant::add(const char* axis, const char* what, const Quantity& calls, double messages,
                     const Term& bytes, double hidden_behind, double share) {
  const Level level = level_along(axis);
  put({bytes.symbol, fmt::format("{}: {}, in one step", axis, what), bytes.quantity, bytes.unit,
       bytes.source});
  const Term seconds = put(link_seconds(calls * messages, bytes, level));
  account_.traffic.push_back({axis, what, level.name, calls.value(), bytes.value(), seconds.value(),
                              std::min(share * machine_.overlap * seconds.value(), hidden_behind)});
}

// Tensor-parallel calls are on the critical path: what follows needs their result.
void Accountant::tensor_traffic(std::int64_t stage) {
  const Term calls = put(tensor_calls_of_block(model_, plan_)),
             block = put(tensor_bytes_of_block(model_, plan_)),
             edge = put(tensor_bytes_of_edge(model_, plan_)),
             loss = put(tensor_bytes_of_cross_entropy(plan_));
  const Quantity blocks("L_stage", static_cast<double>(blocks_of_stage(model_, plan_, stage)));
  Quantity bytes = blocks * block, count = blocks * calls;
  if (is_first(stage) && model_.vocabulary > 0) bytes = bytes + edge, count = count + 1;
  if (is_last(stage) && model_.vocabulary > 0) bytes = bytes + edge + loss, count = count + 4;
  const double steps = (plan_.sequence_parallel ? 1 : 2) * (t_.value() - 1);
  add("tp", plan_.sequence_parallel ? "all-gathers, reduce-scatters" : "all-reduces", m_ * count,
      steps, {"D_step", "", m_ * bytes, Unit::bytes, block.source}, 0);
}

// The gradients of the axis dp, in buckets of 25 MB. They are reduced during the last micro-batch's
// backward, two thirds of its time; what ZeRO then gathers again is not hidden.
void Accountant::data_traffic(std::int64_t stage) {
  const Quantity n("n", static_cast<double>(plan_.mesh.size("dp"))),
      fsdp("N_fsdp", static_cast<double>(plan_.mesh.size("fsdp"))),
      gradient("e_g", plan_.types.gradients), parameter("e", plan_.types.parameters);
  const Term held = put({"P_stage", "parameters of the busiest stage, on one rank",
                         stage_parameters(stage) / fsdp, Unit::number, ""});
  const Quantity buckets = ceil(gradient * held / 25e6);
  const double ring = n.value() - 1, backward = stage_seconds_ * 2 / 3;
  if (plan_.zero == 0) {
    add("dp", "all-reduce of gradients", buckets, 2 * ring,
        ring_all_reduce_bytes(n, gradient * held), backward);
    return;
  }
  // Stage 2 keeps no whole gradients, so it reduces those of every micro-batch.
  const Quantity times = plan_.zero == 1 ? Quantity(1) : m_;
  const double behind = backward * times.value();
  add("dp", "reduce-scatter of gradients", times * buckets, ring,
      ring_all_gather_bytes(n, times * gradient * held), behind);
  add("dp", "all-gather of parameters", buckets, ring, ring_all_gather_bytes(n, parameter * held),
      0);
}

// Parameters are gathered for forward, and those of the blocks again for backward, one unit ahead
// of the computation. The embedding's backward reads no parameters, and the head's gradients are
// computed in forward; a matrix that both share is gathered again. Meanwhile,
// gradients are reduced while the next unit's backward runs. Each block hides one call: the gathers
// for forward have the time of forward, and the other two share that of backward, twice as long.
void Accountant::sharded_traffic(std::int64_t stage) {
  const char* const axis = plan_.mesh.size("fsdp") > 1 ? "fsdp" : "dp";
  const Quantity n("n", static_cast<double>(plan_.mesh.size(axis))),
      gradient("e_g", plan_.types.gradients), parameter("e", plan_.types.parameters),
      blocks("L_stage", static_cast<double>(blocks_of_stage(model_, plan_, stage)));
  const bool has_edges = model_.vocabulary > 0;
  const bool tied = has_edges && model_.tied_head && is_last(stage);
  const double edges = !has_edges ? 0
                       : tied     ? 1
                                  : (is_first(stage) ? 1 : 0) + (is_last(stage) ? 1 : 0);
  const Term held = put({"P_stage", "parameters of the busiest stage, whole",
                         stage_parameters(stage), Unit::number, ""});
  const Term again = put({"P_again", "those that backward reads",
                          tied ? Quantity(held) : blocks * whole_block(), Unit::number, ""});
  const Quantity units = blocks + edges, units_again = blocks + (tied ? edges : 0);
  const double ring = n.value() - 1, forward = m_.value() * stage_seconds_ / 3;
  const auto add_units = [&](const char* what, const Quantity& count, const Term& bytes) {
    const double hidden =
        calls_behind_blocks(count.value(), blocks.value(), has_edges && is_last(stage));
    add(axis, what, m_ * count, ring, bytes, forward * hidden / blocks.value(),
        hidden / count.value());
  };
  add_units("all-gather for forward", units, ring_all_gather_bytes(n, m_ * parameter * held));
  add_units("all-gather for backward", units_again,
            ring_all_gather_bytes(n, m_ * parameter * again));
  add_units("reduce-scatter of gradients", units, ring_all_gather_bytes(n, m_ * gradient * held));
}

// A stage between two others sends an activation on and a gradient back for each micro-batch and
// chunk. The stages run ahead of each other, so only filling and draining the pipeline waits.
void Accountant::pipeline_traffic() {
  const Quantity p("p", static_cast<double>(plan_.mesh.size("pp"))),
      v("v", plan_.schedule == Schedule::zb_v ? 2.0 : static_cast<double>(plan_.chunks));
  const Term message = put(boundary_bytes(model_, plan_));
  const Level level = level_along("pp");
  const double ramp = 2 * (p.value() - 1) * link_seconds(1, message, level).value();
  const Term bytes{"D_step", "", 2 * v * m_ * message, Unit::bytes, message.source};
  const double all = link_seconds(2 * v * m_, bytes, level).value();
  add("pp", "activations on, gradients back", 2 * v * m_, 1, bytes, std::max(0.0, all - ramp));
}

void Accountant::traffic() {
  section("Communication of a rank of the busiest stage");
  const std::int64_t stage = busiest_stage();
  if (t_.value() > 1) tensor_traffic(stage);
  const bool sharded =
      plan_.mesh.size("fsdp") > 1 || (plan_.zero == 3 && plan_.mesh.size("dp") > 1);
  if (sharded) sharded_traffic(stage);
  if (plan_.mesh.size("dp") > 1 && plan_.zero < 3) data_traffic(stage);
  if (plan_.mesh.size("pp") > 1) pipeline_traffic();
  if (account_.blackboard.back().terms.empty()) account_.blackboard.pop_back();
}

void Accountant::time() {
  section("Time of a step");
  const std::int64_t stage = busiest_stage();
  const double traffic_seconds = block_traffic(model_, plan_).value() /
                                 (machine_.memory_bandwidth * machine_.memory_efficiency);
  double tensor = 0, exposed = 0;
  for (const Traffic& each : account_.traffic)
    (each.axis == "tp" ? tensor : exposed) += each.exposed();
  const Quantity computing("t_stage", stage_seconds_), communication("t_tp", tensor),
      others("t_exposed", exposed);
  Quantity bubble = 0;
  if (plan_.mesh.size("pp") > 1) {
    bubble = put(bubble_seconds(plan_, computing + communication / m_));
    account_.bubble_share = put(bubble_share(plan_)).value();
  }
  const Term step_traffic =
      put(optimizer_traffic(stage_parameters(stage), plan_.types, shards_.optimizer));
  const Term update = put(optimizer_seconds(step_traffic, machine_));
  const Term step = put(
      {"t", "one step", m_ * computing + communication + bubble + others + update, Unit::seconds,
       "micro-batches, tensor parallel, bubble, exposed communication, optimizer"});
  account_.step_seconds = step.value();
  account_.utilization =
      put(model_flops_utilization(Quantity("F_model", account_.model_flops), step,
                                  static_cast<double>(plan_.mesh.devices()), machine_))
          .value();

  const double other_ops =
      m_.value() * static_cast<double>(blocks_of_stage(model_, plan_, stage)) * traffic_seconds;
  auto& rows = account_.time;
  rows.push_back({"matrix products", m_.value() * stage_seconds_ - other_ops});
  if (other_ops > 0) rows.push_back({"other ops (memory bandwidth)", other_ops});
  for (const char* axis : {"tp", "dp", "fsdp", "pp"}) {
    double seconds = 0;
    for (const Traffic& each : account_.traffic)
      if (each.axis == axis) seconds += each.exposed();
    if (seconds > 0) rows.push_back({fmt::format("{} communication, exposed", axis), seconds});
  }
  if (bubble.value() > 0) rows.push_back({"pipeline bubble", bubble.value()});
  rows.push_back({"optimizer (memory bandwidth)", update.value()});
}

}  // namespace

double StageMemory::total() const {
  double sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

double Account::most_memory() const {
  double most = 0;
  for (const StageMemory& stage : stages) most = std::max(most, stage.total());
  return most;
}

const TimeRow& Account::binds() const {
  require(!time.empty(), "the plan has no times: the blocks of {} are not known", model.name);
  return *std::ranges::max_element(time, {}, &TimeRow::seconds);
}

Account account(const Model& model, const Plan& plan, const Machine& machine) {
  validate(plan, model);
  machine.level_for(plan.mesh.devices());
  Account result;
  result.model = model, result.plan = plan, result.machine = machine;
  result.tokens = static_cast<double>(plan.batch()) * static_cast<double>(plan.sequence);
  Accountant accountant(result);
  accountant.parameters();
  accountant.memory();
  if (!model.has_blocks()) return result;
  accountant.work();
  accountant.traffic();
  accountant.time();
  return result;
}

}  // namespace ringside::planning

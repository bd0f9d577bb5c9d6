#include "planning/account.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/error.hpp"
#include "planning/formulas/activations.hpp"
#include "planning/formulas/bounds.hpp"
#include "planning/formulas/communication.hpp"
#include "planning/formulas/devices.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/pipeline.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/symbols.hpp"
#include "planning/formulas/unit_gathers.hpp"
#include "planning/formulas/work.hpp"

namespace ringside::planning {
namespace {

// Fills an Account, section by section. Every number of it is the value of a term of the
// derivation.
class Accountant {
 public:
  explicit Accountant(Account& account)
      : account_(account),
        model_(account.model),
        plan_(account.plan),
        machine_(account.machine),
        t_(tensor_ranks(plan_)),
        m_("m", plan_.micro_batches) {}

  void parameters();
  void memory();
  void work();
  void traffic();
  void time();
  void devices();
  void least_batch();

 private:
  void section(const std::string& title) { account_.derivation.push_back({title, {}}); }
  // Adds a term to the derivation.
  Term put(Term term) {
    account_.derivation.back().terms.push_back(term);
    return term;
  }

  // The rank of the pipeline whose work takes longest: one has the head, others may have more
  // blocks.
  PipelinePart busiest();

  // Bytes and calls along an axis, in one step; the time follows from its level.
  void add(Axis axis, const char* what, const Quantity& calls, double messages, const Term& bytes,
           double hidden_behind, double share = 1);
  void tensor_traffic();
  void context_traffic();
  void data_traffic();
  void sharded_traffic();
  void copies_traffic();
  void expert_traffic();
  void pipeline_traffic();
  Level level_along(Axis axis) const;

  Account& account_;
  const Model& model_;
  const Plan& plan_;
  const Machine& machine_;
  const Quantity t_, m_;
  PipelinePart part_;  // of the busiest rank
  // Of one micro-batch on the busiest stage, without communication; of it, to add up gradients.
  double stage_seconds_ = 0, sum_seconds_ = 0;
};

void Accountant::parameters() {
  section("Parameters");
  for (const Term& term : parameter_count(model_)) account_.parameters = put(term).value();
  if (model_.experts) account_.active_parameters = put(active_parameters(model_)).value();
  account_.state_bytes =
      put(state_of_model(Quantity("P", account_.parameters), plan_.types)).value();
}

void Accountant::memory() {
  for (RankMemory& memory : memory_of_stages(model_, plan_)) {
    account_.derivation.push_back(
        {fmt::format("Memory of a rank, {} stage", memory.name), std::move(memory.terms)});
    account_.stages.push_back(std::move(memory));
  }
}

PipelinePart Accountant::busiest() {
  const std::int64_t stages = plan_.mesh.size(Axis::pp);
  const double block = block_seconds(model_, plan_, machine_).value(),
               head = head_seconds(model_, plan_, machine_).value();
  const auto seconds = [&](const PipelinePart& part) {
    return part.blocks * block + (part.has_head ? head : 0);
  };
  account_.busiest = stages - 1;
  PipelinePart busiest = pipeline_part(model_, plan_, stages - 1);
  for (const std::int64_t rank : {std::int64_t{0}, std::min<std::int64_t>(1, stages - 1)})
    if (const auto part = pipeline_part(model_, plan_, rank); seconds(part) > seconds(busiest))
      busiest = part, account_.busiest = rank;
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
  put(block_kernels(model_, plan_));
  const Term block = put(block_seconds(model_, plan_, machine_)),
             head = put(head_seconds(model_, plan_, machine_));
  part_ = busiest();
  const Quantity blocks("L_stage", part_.blocks);
  const bool has_head = part_.has_head && model_.vocabulary > 0;
  Quantity stage = has_head ? blocks * block + head : blocks * block;
  if (plan_.micro_batches > 1 && !plan_.fused_gradients) {
    const Quantity sums = memory_seconds(
        put(accumulation_traffic(stage_parameters(model_, t_, part_), plan_)), machine_);
    sum_seconds_ = sums.value(), stage = stage + sums;
  }
  stage_seconds_ =
      put({"t_stage", "one micro-batch on the busiest stage", stage, Unit::seconds, ""}).value();
}

// The network that joins the ranks of an axis: of messages along pp, else of a ring.
Level Accountant::level_along(Axis axis) const {
  const std::int64_t stride = plan_.mesh.stride(axis), count = plan_.mesh.size(axis);
  const std::size_t index = machine_.level_index_for(stride * count);
  return axis == Axis::pp ? machine_.level_along(index, stride)
                          : machine_.level_of_ring(index, count, stride);
}

void Accountant::add(Axis axis, const char* what, const Quantity& calls, double messages,
                     const Term& bytes, double hidden_behind, double share) {
  const Level level = level_along(axis);
  put({bytes.symbol, fmt::format("{}: {}, in one step", name_of(axis), what), bytes.quantity,
       bytes.unit, bytes.source});
  const Term seconds = put(link_seconds(calls * messages, bytes, level));
  account_.traffic.push_back({std::string(name_of(axis)), what, level.name, calls.value(),
                              bytes.value(), seconds.value(),
                              std::min(share * machine_.overlap * seconds.value(), hidden_behind)});
}

// Tensor-parallel calls are on the critical path: what follows needs their result.
void Accountant::tensor_traffic() {
  const Term calls = put(tensor_calls_of_block(model_, plan_)),
             block = put(tensor_bytes_of_block(model_, plan_)),
             edge = put(tensor_bytes_of_edge(model_, plan_)),
             loss = put(tensor_bytes_of_cross_entropy(plan_));
  const Quantity blocks("L_stage", part_.blocks);
  Quantity bytes = blocks * block, count = blocks * calls;
  if (part_.has_embedding && model_.vocabulary > 0) bytes = bytes + edge, count = count + 1;
  if (part_.has_head && model_.vocabulary > 0) bytes = bytes + edge + loss, count = count + 4;
  const double steps = (plan_.sequence_parallel ? 1 : 2) * (t_.value() - 1);
  Quantity all = m_ * bytes;
  if (const Term sums = tensor_bytes_of_sums(model_, plan_, part_); sums.value() > 0)
    all = all + put(sums);
  add(Axis::tp, plan_.sequence_parallel ? "all-gathers, reduce-scatters" : "all-reduces",
      m_ * count, steps, {"D_step", "", all, Unit::bytes, block.source}, 0);
}

// A ring passes keys on while attention runs; the other exchanges are waited for.
void Accountant::context_traffic() {
  const Quantity blocks("L_stage", part_.blocks);
  const Term calls = put(context_calls_of_block(plan_)),
             bytes = put(context_bytes_of_block(model_, plan_));
  const auto exchange = plan_.context.exchange;
  const bool is_ring = exchange == context_parallel::Exchange::ring;
  const double share =
      attention_flops(model_, plan_).value() / block_forward_flops(model_, plan_).value();
  add(Axis::cp, name_of(exchange).c_str(), m_ * blocks * calls,
      is_ring ? 1 : plan_.mesh.size(Axis::cp) - 1,
      {"D_step", "", m_ * blocks * bytes, Unit::bytes, bytes.source},
      is_ring ? m_.value() * stage_seconds_ * share : 0);
}

// The experts wait for their tokens, and what follows for their outputs. When backward has ended,
// the gradients of all but the experts are averaged.
void Accountant::expert_traffic() {
  const Quantity blocks("L_stage", part_.blocks), n("n", plan_.mesh.size(Axis::ep)),
      shards("N", plan_.stage() > 0 ? plan_.state_ranks() : 1),
      gradient("e_g", plan_.types.gradients);
  const Term calls = put(expert_calls_of_block(plan_)),
             bytes = put(expert_bytes_of_block(model_, plan_));
  add(Axis::ep, "all-to-alls of tokens", m_ * blocks * calls, n.value() - 1,
      {"D_step", "", m_ * blocks * bytes, Unit::bytes, bytes.source}, 0);
  const Term held = put({"P_shared", "parameters of the busiest stage but the experts, a shard",
                         parameters_beside_experts(model_, t_, part_) / shards, Unit::number, ""});
  add(Axis::ep, "all-reduce of gradients", 1, 2 * (n.value() - 1),
      ring_all_reduce_bytes(n, gradient * held), 0);
}

// Gradients in buckets of 25 MB, where parameters are whole. They are reduced during the last
// micro-batch's backward, two thirds of its time; what ZeRO then gathers again is not hidden.
void Accountant::data_traffic() {
  const Axis axis = plan_.state_axis();
  const Quantity n("n", plan_.state_ranks()), gradient("e_g", plan_.types.gradients),
      parameter("e", plan_.types.parameters);
  const Term held = put({"P_stage", "parameters of the busiest stage, on one rank",
                         stage_parameters(model_, t_, part_), Unit::number, ""});
  const Quantity buckets = ceil(gradient * held / plan_.bucket_bytes);
  const double ring = n.value() - 1, backward = stage_seconds_ * 2 / 3;
  if (plan_.stage() == 0) {
    const std::int64_t stride = plan_.mesh.stride(axis), ranks = plan_.mesh.size(axis);
    const double tree =
        machine_.tree_latency(machine_.level_index_for(stride * ranks), ranks, stride);
    // The hops of a ring, or of a tree between servers.
    const double hops = tree > 0 ? std::min(2 * ring, tree / level_along(axis).latency) : 2 * ring;
    add(axis, "all-reduce of gradients", buckets, hops, ring_all_reduce_bytes(n, gradient * held),
        backward);
    return;
  }
  // Stage 2 keeps no whole gradients, so it reduces those of every micro-batch.
  const Quantity times = plan_.stage() == 1 ? Quantity(1) : m_;
  const double behind = backward * times.value();
  add(axis, "reduce-scatter of gradients", times * buckets, ring,
      ring_all_gather_bytes(n, times * gradient * held), behind);
  add(axis, "all-gather of parameters", buckets, ring, ring_all_gather_bytes(n, parameter * held),
      0);
}

// Copies of a shard of the gradients, along dp in a mesh with fsdp, averaged when backward has
// ended.
void Accountant::copies_traffic() {
  const Quantity n("n", plan_.copies()), shards("N", plan_.state_ranks()),
      gradient("e_g", plan_.types.gradients);
  const Term held = put({"P_shard", "parameters of the busiest stage, a rank's shard",
                         stage_parameters(model_, t_, part_) / shards, Unit::number, ""});
  add(Axis::dp, "all-reduce of the shard's gradients", 1, 2 * (n.value() - 1),
      ring_all_reduce_bytes(n, gradient * held), 0);
}

// Parameters are gathered for forward, and those of the blocks again for backward, one unit ahead
// of the computation. Meanwhile, gradients are reduced while the next unit's backward runs. Each
// block hides one call: the gathers for forward have the time of forward, and the other two share
// that of backward, twice as long.
void Accountant::sharded_traffic() {
  const Axis axis = plan_.state_axis();
  const Quantity n("n", plan_.state_ranks()), gradient("e_g", plan_.types.gradients),
      parameter("e", plan_.types.parameters);
  const ShardedUnits units = sharded_units(model_, t_, part_);
  const UnitGathers gathers = unit_gathers(model_, plan_, account_.busiest);
  const Term held = put({"P_stage", "parameters of the busiest stage, whole",
                         stage_parameters(model_, t_, part_), Unit::number, ""});
  const auto gathered = [&](const char* symbol, const char* what, double numbers) {
    put({symbol, what, Quantity(symbol, numbers), Unit::number, "counted unit by unit"});
    return Quantity(symbol, numbers);
  };
  const Quantity once = gathered("P_forward", "gathered for forward, in a step", gathers.forward),
                 again = gathered("P_backward", "gathered for backward", gathers.backward);
  const double ring = n.value() - 1, forward = m_.value() * stage_seconds_ / 3;
  const auto add_units = [&](const char* what, double count, double hidden, const Term& bytes) {
    add(axis, what, m_ * count, ring, bytes, forward * hidden / part_.blocks, hidden / count);
  };
  add_units("all-gather for forward", units.count, units.hidden,
            ring_all_gather_bytes(n, parameter * once));
  add_units("all-gather for backward", units.again, units.hidden_again,
            ring_all_gather_bytes(n, parameter * again));
  add_units("reduce-scatter of gradients", units.count, units.hidden,
            ring_all_gather_bytes(n, m_ * gradient * held));
}

// A stage sends an activation on and a gradient back for each micro-batch, if there is a stage on
// another rank. Stages run ahead of each other, so only filling and draining the pipeline waits.
void Accountant::pipeline_traffic() {
  const Quantity p("p", plan_.mesh.size(Axis::pp)), k("k", part_.messages);
  const Term message = put(boundary_bytes(model_, plan_));
  const Level level = level_along(Axis::pp);
  const double ramp = 2 * (p.value() - 1) * link_seconds(1, message, level).value();
  Quantity sent = k * m_ * message;
  if (const Term sums = pipeline_bytes_of_sums(model_, plan_, part_); sums.value() > 0)
    sent = sent + put(sums);
  const Term bytes{"D_step", "", sent, Unit::bytes, message.source};
  const double all = link_seconds(k * m_, bytes, level).value();
  add(Axis::pp, "activations on, gradients back", k * m_, 1, bytes, std::max(0.0, all - ramp));
}

void Accountant::traffic() {
  section("Communication of a rank of the busiest stage");
  if (t_.value() > 1) tensor_traffic();
  if (plan_.mesh.size(Axis::cp) > 1) context_traffic();
  if (plan_.mesh.size(Axis::ep) > 1) expert_traffic();
  if (plan_.shards_parameters()) sharded_traffic();
  if (plan_.state_ranks() > 1 && plan_.stage() < 3) data_traffic();
  if (plan_.copies() > 1) copies_traffic();
  if (plan_.mesh.size(Axis::pp) > 1) pipeline_traffic();
  if (account_.derivation.back().terms.empty()) account_.derivation.pop_back();
}

void Accountant::time() {
  section("Time of a step");
  double tensor = 0, exposed = 0;
  for (const AxisTraffic& each : account_.traffic)
    (each.axis == "tp" ? tensor : exposed) += each.exposed();
  const Quantity computing("t_stage", stage_seconds_), communication("t_tp", tensor),
      others("t_exposed", exposed);
  Quantity bubble = 0;
  if (plan_.mesh.size(Axis::pp) > 1) {
    bubble = put(bubble_seconds(plan_, computing + communication / m_));
    account_.bubble_share = put(bubble_share(plan_)).value();
  }
  const Term step_traffic = put(optimizer_traffic(stage_parameters(model_, t_, part_), plan_.types,
                                                  shards_of(plan_).optimizer));
  const Term update = put(optimizer_seconds(step_traffic, machine_));
  const Term step = put(
      {"t", "one step", m_ * computing + communication + bubble + others + update, Unit::seconds,
       "micro-batches, tensor parallel, bubble, exposed communication, optimizer"});
  account_.step_seconds = step.value();
  account_.utilization =
      put(model_flops_utilization(Quantity("F_model", account_.model_flops), step,
                                  static_cast<double>(plan_.mesh.ranks()), machine_))
          .value();

  const double other_ops =
      m_.value() * (part_.blocks * memory_seconds(block_traffic(model_, plan_), machine_).value() +
                    sum_seconds_);
  const double kernels =  // of the blocks
      m_.value() * part_.blocks * kernel_seconds(block_kernels(model_, plan_), machine_).value();
  auto& rows = account_.time;
  rows.push_back({"matrix products", m_.value() * stage_seconds_ - other_ops - kernels});
  if (other_ops > 0) rows.push_back({"other ops (memory bandwidth)", other_ops});
  if (kernels > 0) rows.push_back({"launches of kernels", kernels});
  for (const auto& axis : std::views::reverse(parallel::all_axes())) {
    double seconds = 0;
    for (const AxisTraffic& each : account_.traffic)
      if (each.axis == axis.name) seconds += each.exposed();
    if (seconds > 0) rows.push_back({fmt::format("{} communication, exposed", axis.name), seconds});
  }
  if (bubble.value() > 0) rows.push_back({"pipeline bubble", bubble.value()});
  rows.push_back({"optimizer (memory bandwidth)", update.value()});
}

// How many devices would do under FSDP alone, each with the activations of one micro-batch.
void Accountant::devices() {
  section("Devices");
  const Quantity state("M_state", account_.state_bytes), memory("M_device", machine_.memory);
  put(devices_for_state(state, memory));
  if (!model_.has_blocks()) return;
  Plan alone = plan_;
  alone.mesh = {}, alone.sequence_parallel = false;
  const Term block = put(block_activations(model_, alone));
  const Term kept = put({"A_alone", "activations of a device's micro-batch, all blocks",
                         Quantity("L", model_.layers) * block, Unit::bytes, block.source});
  if (kept.value() / 2 >= memory.value()) return;
  const Term count = put(fsdp_devices(state, kept, memory));
  put(fsdp_bytes(state, kept, Quantity("N", count.value())));
}

// Which batch is large enough to hide what FSDP and tensor parallel send.
void Accountant::least_batch() {
  const SplitInput split{
      .width = static_cast<double>(model_.d_model),
      .inner = static_cast<double>(model_.d_ff),
      .fsdp = static_cast<double>(plan_.mesh.size(Axis::fsdp)),
      .tensor = t_.value(),
      .peak = machine_.peak,
      .bandwidth = machine_.levels.front().bytes_per_second * machine_.levels.front().efficiency,
      .torus_fsdp = plan_.torus_fsdp,
      .torus_tensor = plan_.torus_tp};
  if (split.fsdp == 1 || split.tensor == 1 || model_.d_ff == 0) return;
  section("Least batch, for two matrices of a block, forward");
  for (const Term& term : {split_compute_seconds(split, account_.tokens), split_fsdp_seconds(split),
                           split_tensor_seconds(split, account_.tokens),
                           tokens_if_overlapped(split), tokens_if_added(split),
                           tokens_at_best_split(split), best_fsdp(split), largest_tensor(split)})
    put(term);
}

}  // namespace

double Account::most_memory() const {
  return std::ranges::max(stages, {}, &RankMemory::total).total();
}

const TimeRow& Account::binds() const {
  require(!time.empty(), "the plan has no times: the blocks of {} are not known", model.name);
  return *std::ranges::max_element(time, {}, &TimeRow::seconds);
}

Account account(const Model& model, const Plan& plan, const Machine& machine) {
  validate(plan, model);
  machine.level_for(plan.mesh.ranks());
  Account result;
  result.model = on_mesh(model, plan.mesh), result.plan = plan, result.machine = machine;
  result.tokens = static_cast<double>(plan.batch()) * static_cast<double>(plan.sequence);
  Accountant accountant(result);
  accountant.parameters();
  accountant.memory();
  accountant.devices();
  if (!model.has_blocks()) return result;
  accountant.work();
  accountant.traffic();
  accountant.time();
  accountant.least_batch();
  return result;
}

}  // namespace ringside::planning

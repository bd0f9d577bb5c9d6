// Judges formulas of memory: against the reference, against the ledger of ranks that train under
// ZeRO, and on the course's XXL model.
#include <cmath>

#include "exercises/22-memory-accounting/interface.hpp"
#include "exercises/judge/planning/devices.hpp"
#include "exercises/judge/planning/formulas.hpp"
#include "exercises/judge/planning/inputs_json.hpp"
#include "exercises/judge/program.hpp"
#include "exercises/judge/zero/ledger_under_zero.hpp"

namespace ringside::exercises {
namespace {

// ---- Formulas ----

constexpr Types bf16{}, fp32{.parameters = 4, .gradients = 4, .activations = 4};

std::vector<Question> state_questions() {
  struct Kind {
    const char* name;
    const Student<StateBytes>& student;
    StateBytes* reference;
  };
  const Kind kinds_of_state[] = {
      {"parameter_bytes", student_parameter_bytes, planning::parameter_bytes},
      {"gradient_bytes", student_gradient_bytes, planning::gradient_bytes},
      {"master_bytes", student_master_bytes, planning::master_bytes},
      {"moment_bytes", student_moment_bytes, planning::moment_bytes}};
  const Quantity p("P", 7.5e9);
  std::vector<Question> questions;
  for (const Types& types : {fp32, bf16}) {
    const std::string of =
        fmt::format(" of 7.5e9 {} parameters", types.parameters < 4 ? "bf16" : "fp32");
    for (const auto& [name, student, reference] : kinds_of_state)
      for (const double shards : {1, 8})
        questions.push_back({fmt::format("{}{} over N = {} ranks", name, of, shards),
                             [=, &s = student] { return s(p, types, shards); },
                             [=, r = reference] { return r(p, types, shards); }});
    questions.push_back(
        ask("state_of_model" + of, student_state_of_model, planning::state_of_model, p, types));
  }
  return questions;
}

Json collect_state(World&) {
  return answers_to(state_questions());
}

Verdict judge_state(const Run& run) {
  return judge_answers(run.ranks[0], state_questions());
}

// ---- The ledger: one step of a net with AdamW, under each stage of ZeRO ----

constexpr const char* kinds[] = {"parameters", "gradients", "optimizer state"};

// Beside each entry of the ledger what the student's formulas say: [{"ledger", "formulas"}].
Json collect_ledger(World& world) {
  Json all = Json::array();
  for (const LedgerEntry& entry : ledger_under_zero(world)) {
    planning::Plan plan;
    plan.mesh = plan.mesh.with(planning::Axis::dp, world.size());
    plan.zero = entry.stage;
    const planning::Shards shards = student_shards_of(plan);
    const Quantity n("P", static_cast<double>(entry.parameters));
    const Types types = entry.dtype == autograd::DType::fp32 ? fp32 : bf16;
    all.push_back({{"rank does", entry.what},
                   {"ledger", entry.bytes},
                   {"formulas",
                    {student_parameter_bytes(n, types, shards.parameters).value(),
                     student_gradient_bytes(n, types, shards.gradients).value(),
                     student_master_bytes(n, types, shards.optimizer).value() +
                         student_moment_bytes(n, types, shards.optimizer).value()}}});
  }
  return all;
}

// The shards are padded and AdamW counts its steps: less than 2 %.
Verdict judge_ledger_of_stages(const Run& run) {
  for (int rank = 0; rank < run.world; ++rank)
    for (const Json& kept : run.ranks[rank])
      for (std::size_t kind = 0; kind < 3; ++kind) {
        const double ledger = kept.at("ledger").at(kind), formula = kept.at("formulas").at(kind);
        if (std::abs(ledger - formula) <= 0.02 * ledger) continue;
        return {{fmt::format(
            "rank {}, {}: {} take {:.0f} bytes in the ledger, by your formulas "
            "{:.0f}",
            rank, kept.at("rank does").get<std::string>(), kinds[kind], ledger, formula)}};
      }
  return {};
}

// ---- The course's XXL: 126 blocks of two matrices, d = 16384, f = 53248 ----

std::vector<Question> course_questions() {
  const Quantity p("P", 2.0 * 126 * 16384 * 53248), d("d", 16384), f("f", 53248), e("e", 2);
  const Quantity state("M_state", 16 * p.value()), memory("M", 80e9), larger("M", 95e9);
  const auto kept = [=](double tokens) {
    return Quantity("A", 126 * tokens * 2 * (d.value() + f.value()));
  };
  std::vector<Question> questions;
  const auto add = [&](Question question, decltype(Question::known) known = {}) {
    question.known = std::move(known);
    questions.push_back(std::move(question));
  };
  add(ask("state_of_model of XXL in bf16", student_state_of_model, planning::state_of_model, p,
          bf16));
  add(ask("devices_for_state of XXL, 80 GB each", student_devices_for_state,
          planning::devices_for_state, state, memory),
      {{41, "GiB taken for GB: 80 GB are 80e9 bytes"},
       {state.value() / 80e9, "no whole number of devices"}});
  add(ask("feed_forward_activations of a block of XXL, 1 token", student_feed_forward_activations,
          planning::feed_forward_activations, {"T", 1}, d, f, e, {"t", 1}),
      {{4 * (d.value() + f.value()), "also the gradients, which backward does not keep"}});
  add(ask("feed_forward_activations of a block of XXL, 4096 tokens, t = 4",
          student_feed_forward_activations, planning::feed_forward_activations, {"T", 4096}, d, f,
          e, {"t", 4}));
  const char* const why = "without the half of the activations that every device has whole";
  for (const double tokens : {0, 4096}) {
    const std::string of = fmt::format(" of XXL with {} tokens a device", tokens);
    const double all = state.value() + kept(tokens).value();
    add(ask("fsdp_bytes" + of + ", N = 61", student_fsdp_bytes, planning::fsdp_bytes, state,
            kept(tokens), {"N", 61}),
        {{all / 61, why}});
    add(ask("fsdp_devices" + of + ", 95 GB each", student_fsdp_devices, planning::fsdp_devices,
            state, kept(tokens), larger),
        {{std::ceil(all / 95e9), why}});
  }
  return questions;
}

Json collect_course(World&) {
  return answers_to(course_questions());
}

Verdict judge_course(const Run& run) {
  return judge_answers(run.ranks[0], course_questions());
}

void by_program() {
  answer_by_program(student_shards_of, "shards_of");
  answer_by_program(student_parameter_bytes, "parameter_bytes");
  answer_by_program(student_gradient_bytes, "gradient_bytes");
  answer_by_program(student_master_bytes, "master_bytes");
  answer_by_program(student_moment_bytes, "moment_bytes");
  answer_by_program(student_state_of_model, "state_of_model");
  answer_by_program(student_feed_forward_activations, "feed_forward_activations");
  answer_by_program(student_devices_for_state, "devices_for_state");
  answer_by_program(student_fsdp_bytes, "fsdp_bytes");
  answer_by_program(student_fsdp_devices, "fsdp_devices");
}

const Judge judge("22-memory-accounting",
                  {{"state", collect_state, judge_state},
                   {"ledger", collect_ledger, judge_ledger_of_stages},
                   {"course", collect_course, judge_course}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises

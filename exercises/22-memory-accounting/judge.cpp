// Judges formulas of memory: against the reference, against the ledger of ranks that train under
// ZeRO, and on the course's XXL model.
#include <cmath>

#include "exercises/22-memory-accounting/interface.hpp"
#include "exercises/judge/formulas.hpp"
#include "exercises/judge/ledger_under_zero.hpp"
#include "planning/formulas/devices.hpp"

namespace ringside::exercises {
namespace {

// ---- Formulas ----

constexpr Types bf16{}, fp32{.parameters = 4, .gradients = 4, .activations = 4};

std::vector<Question> state_questions() {
  std::vector<Question> questions;
  const auto ask = [&](const char* name, const Student<StateBytes>& student,
                       StateBytes* reference) {
    for (const Types& types : {fp32, bf16})
      for (const double shards : {1, 8})
        questions.push_back({fmt::format("{} of 7.5e9 {} parameters over N = {} ranks", name,
                                         types.parameters < 4 ? "bf16" : "fp32", shards),
                             [=, &student] {
                               return student({"P", 7.5e9}, types, shards);
                             },
                             [=] {
                               return reference({"P", 7.5e9}, types, shards);
                             }});
  };
  ask("parameter_bytes", student_parameter_bytes, planning::parameter_bytes);
  ask("gradient_bytes", student_gradient_bytes, planning::gradient_bytes);
  ask("master_bytes", student_master_bytes, planning::master_bytes);
  ask("moment_bytes", student_moment_bytes, planning::moment_bytes);
  for (const Types& types : {fp32, bf16})
    questions.push_back({fmt::format("state_of_model of 7.5e9 {} parameters",
                                     types.parameters < 4 ? "bf16" : "fp32"),
                         [=] {
                           return student_state_of_model({"P", 7.5e9}, types);
                         },
                         [=] {
                           return planning::state_of_model({"P", 7.5e9}, types);
                         }});
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
    plan.mesh.axes = {{"dp", world.size()}};
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
  std::vector<Question> questions = {
      {"state_of_model of XXL in bf16", [=] { return student_state_of_model(p, bf16); },
       [=] { return planning::state_of_model(p, bf16); }},
      {"devices_for_state of XXL, 80 GB each",
       [=] { return student_devices_for_state(state, memory); },
       [=] { return planning::devices_for_state(state, memory); },
       {{41, "GiB taken for GB: 80 GB are 80e9 bytes"},
        {state.value() / 80e9, "no whole number of devices"}}},
      {"feed_forward_activations of a block of XXL, 1 token",
       [=] {
         return student_feed_forward_activations({"T", 1}, d, f, e, {"t", 1});
       },
       [=] {
         return planning::feed_forward_activations({"T", 1}, d, f, e, {"t", 1});
       },
       {{4 * (d.value() + f.value()), "also the gradients, which backward does not keep"}}},
      {"feed_forward_activations of a block of XXL, 4096 tokens, t = 4",
       [=] {
         return student_feed_forward_activations({"T", 4096}, d, f, e, {"t", 4});
       },
       [=] {
         return planning::feed_forward_activations({"T", 4096}, d, f, e, {"t", 4});
       }}};
  const char* const why = "without the half of the activations that every device has whole";
  for (const double tokens : {0, 4096}) {
    const std::string of = fmt::format(" of XXL with {} tokens a device", tokens);
    const double all_divided = std::ceil((state.value() + kept(tokens).value()) / 95e9);
    questions.push_back({"fsdp_bytes" + of + ", N = 61",
                         [=] {
                           return student_fsdp_bytes(state, kept(tokens), {"N", 61});
                         },
                         [=] {
                           return planning::fsdp_bytes(state, kept(tokens), {"N", 61});
                         },
                         {{(state.value() + kept(tokens).value()) / 61, why}}});
    questions.push_back({"fsdp_devices" + of + ", 95 GB each",
                         [=] { return student_fsdp_devices(state, kept(tokens), larger); },
                         [=] { return planning::fsdp_devices(state, kept(tokens), larger); },
                         {{all_divided, why}}});
  }
  return questions;
}

Json collect_course(World&) {
  return answers_to(course_questions());
}

Verdict judge_course(const Run& run) {
  return judge_answers(run.ranks[0], course_questions());
}

const Judge judge("22-memory-accounting", {{"state", collect_state, judge_state},
                                           {"ledger", collect_ledger, judge_ledger_of_stages},
                                           {"course", collect_course, judge_course}});

}  // namespace
}  // namespace ringside::exercises

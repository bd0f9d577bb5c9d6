#include "planning/formulas/pipeline.hpp"

namespace ringside::planning {
namespace {

// How many times a stage's work for one micro-batch it waits: the idle slots before its first
// forward and after its last backward.
//
//     gpipe, 1f1b    p - 1 slots of F + B
//     interleaved    the slots are 1/v as long
//     zb_h1          W fills two thirds of them: p - 1 slots of F + I - W, a third of F + I + W
//     zb_v           none
Quantity idle_slots(const Plan& plan) {
  const Quantity p("p", static_cast<double>(plan.mesh.size("pp"))),
      v("v", static_cast<double>(plan.chunks));
  switch (plan.schedule) {
    case Schedule::interleaved:
      return (p - 1) / v;
    case Schedule::zb_h1:
      return (p - 1) / 3;
    case Schedule::zb_v:
      return 0;
    case Schedule::gpipe:
    case Schedule::one_f_one_b:
      break;
  }
  return p - 1;
}

const char* source_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::gpipe:
      return "Huang et al. 2019 (GPipe), section 2.3";
    case Schedule::one_f_one_b:
      return "Narayanan et al. 2021, section 2.2.1";
    case Schedule::interleaved:
      return "Narayanan et al. 2021, section 2.2.2";
    case Schedule::zb_h1:
      return "Qi et al. 2023 (Zero bubble), table 1";
    case Schedule::zb_v:
      return "Qi et al. 2024 (Controllable memory), table 1";
  }
  return "";
}

}  // namespace

Term bubble_share(const Plan& plan) {
  const Quantity idle = idle_slots(plan), m("m", static_cast<double>(plan.micro_batches));
  return {"bubble", "share of the step that a stage waits", idle / (m + idle), Unit::share,
          source_of(plan.schedule)};
}

Term bubble_seconds(const Plan& plan, const Quantity& stage) {
  return {"t_bubble", "time that a stage waits", idle_slots(plan) * stage, Unit::seconds,
          source_of(plan.schedule)};
}

}  // namespace ringside::planning

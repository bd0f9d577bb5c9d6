#include "planning/formulas/pipeline.hpp"

#include <algorithm>

#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/timing.hpp"

namespace ringside::planning {
namespace {

// Timed with F = I = W. The work of a micro-batch is that of the busiest rank.
double idle_slots_of_file(const Plan& plan) {
  const auto timing =
      time_of(lower(pipeline_parallel::make_schedule(plan.schedule, plan.mesh.size(Axis::pp),
                                                     static_cast<int>(plan.micro_batches))),
              {});
  const double busy = *std::ranges::max_element(timing.busy);
  return (timing.step - busy) / busy * static_cast<double>(plan.micro_batches);
}

// How many times a stage's work for one micro-batch it waits: the idle slots before its first
// forward and after its last backward.
//
//     gpipe, 1f1b    p - 1 slots of F + B
//     interleaved    the slots are 1/v as long
//     looped_bfs     the same; with m < p every further stage waits p - m slots
//     zb_h1          W fills two thirds of them: p - 1 slots of F + I - W, a third of F + I + W
//     zb_v           p - 1 slots of F, until the first micro-batch has reached the last rank; half
//                    a stage's forward is a sixth of its work
//     interleaved_zb as zb_h1, with slots that are 1/v as long
//     dualpipe_v     as zb_v
Quantity idle_slots(const Plan& plan) {
  const Quantity p("p", plan.mesh.size(Axis::pp)), v("v", plan.chunks);
  if (plan.schedule.starts_with("csv:")) return {"idle", idle_slots_of_file(plan)};
  if (plan.schedule == "interleaved") return (p - 1) / v;
  if (plan.schedule == "looped_bfs") {
    const Quantity m("m", plan.micro_batches);
    return m.value() < p.value() ? (p - 1 + (v - 1) * (p - m)) / v : (p - 1) / v;
  }
  if (plan.schedule == "zb_h1") return (p - 1) / 3;
  if (plan.schedule == "zb_v" || plan.schedule == "dualpipe_v") return (p - 1) / 6;
  if (plan.schedule == "interleaved_zb") return (p - 1) / (3 * v);
  return p - 1;
}

const char* source_of(const std::string& schedule) {
  if (schedule.starts_with("csv:")) return "timed action by action, F = I = W";
  if (schedule == "gpipe") return "Huang et al. 2019 (GPipe), section 2.3";
  if (schedule == "interleaved") return "Narayanan et al. 2021, section 2.2.2";
  if (schedule == "zb_h1") return "Qi et al. 2023 (Zero bubble), table 1";
  if (schedule == "looped_bfs") return "Lamy-Poirier 2023 (Breadth-first pipeline), section 3";
  if (schedule == "interleaved_zb") return "Qi et al. 2023 (Zero bubble), with stages 1/v as long";
  if (schedule == "dualpipe_v") return "timed, F = I = W: the fill, as with zb_v";
  if (schedule == "zb_v") return "Qi et al. 2024 (Controllable memory), table 1, and the fill";
  return "Narayanan et al. 2021, section 2.2.1";
}

}  // namespace

Term bubble_share(const Plan& plan) {
  const Quantity idle = idle_slots(plan), m("m", plan.micro_batches);
  return {"bubble", "share of the step that a stage waits", idle / (m + idle), Unit::share,
          source_of(plan.schedule)};
}

Term bubble_seconds(const Plan& plan, const Quantity& stage) {
  return {"t_bubble", "time that a stage waits", idle_slots(plan) * stage, Unit::seconds,
          source_of(plan.schedule)};
}

}  // namespace ringside::planning

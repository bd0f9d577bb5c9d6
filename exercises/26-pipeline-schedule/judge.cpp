// Judges the schedules of GPipe and 1F1B: by proof for 2 to 8 ranks and 1 to 16 micro-batches, and
// by their run between real ranks.
#include <cmath>
#include <functional>
#include <sstream>

#include "cli/pictures/pipeline/pipeline_picture.hpp"
#include "exercises/26-pipeline-schedule/interface.hpp"
#include "exercises/judge/pipeline_parallel/pipeline_step.hpp"
#include "exercises/judge/program.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/deadlock.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "parallel/pipeline/proof/verify.hpp"

namespace ringside::exercises {
namespace {

using namespace pipeline_parallel;

constexpr int most_ranks = 8, most_micro_batches = 16;
constexpr const char* names[] = {"gpipe", "1f1b"};

// Of all ranks, as the student's function has them; computations only.
Schedule student_schedule(const std::string& name, int ranks, int micro_batches) {
  Schedule schedule{micro_batches, loop_placement(ranks), {}};
  for (int rank = 0; rank < ranks; ++rank)
    schedule.actions.push_back(name == "gpipe" ? student_gpipe(ranks, micro_batches, rank)
                                               : student_one_f_one_b(ranks, micro_batches, rank));
  return schedule;
}

// {"gpipe": [ranks - 2][micro_batches - 1][rank][[kind, stage, micro_batch], ...], "1f1b": ...}
Json collect_schedules(World&) {
  Json all;
  for (const char* name : names)
    for (int p = 2; p <= most_ranks; ++p) {
      Json& of_ranks = all[name].emplace_back(Json::array());
      for (int m = 1; m <= most_micro_batches; ++m)
        of_ranks.push_back(student_schedule(name, p, m).actions);
    }
  return all;
}

// The first schedule in which fault() finds something, as "1f1b with p = 4, m = 8: ...".
using Fault = std::function<std::string(const Schedule& schedule, const Setting& setting)>;
Verdict first_fault(const Run& run, bool with_picture, const Fault& fault) {
  for (const char* name : names)
    for (int p = 2; p <= most_ranks; ++p)
      for (int m = 1; m <= most_micro_batches; ++m) {
        Schedule schedule{m, loop_placement(p), {}};
        schedule.actions =
            run.ranks[0].at(name).at(p - 2).at(m - 1).get<decltype(schedule.actions)>();
        const std::string found = fault(schedule, {name, p, m, 1});
        if (found.empty()) continue;
        std::ostringstream picture;
        if (with_picture) {
          const Schedule lowered = lower(schedule);
          cli::draw_pipeline(picture, {lowered, time_of(lowered, {})}, 100, false);
        }
        return {{fmt::format("{} with p = {}, m = {}: {}", name, p, m, found)}, picture.str()};
      }
  return {};
}

// Each micro-batch once forward and once backward, and F before B.
Verdict judge_complete(const Run& run) {
  return first_fault(run, false, [](const Schedule& schedule, const Setting&) {
    const std::vector<std::string> found = verify(schedule);
    return found.empty() || found[0].starts_with("deadlock") ? "" : found[0];
  });
}

Verdict judge_deadlock(const Run& run) {
  return first_fault(run, false, [](const Schedule& schedule, const Setting&) {
    const std::string circle = find_deadlock(lower(schedule), Sends::buffered);
    return circle.empty() ? find_deadlock(lower(schedule), Sends::one_per_lane) : circle;
  });
}

Verdict judge_bubble(const Run& run) {
  return first_fault(run, true, [](const Schedule& schedule, const Setting& setting) {
    for (const Durations& durations : {Durations{}, Durations{.forward = 3, .backward = 4}}) {
      const double seen = time_of(lower(schedule), durations).bubble();
      const double expected = *bubble_by_formula(setting, durations);
      if (std::abs(seen - expected) > 1e-9)
        return fmt::format(
            "the ranks are idle {:.1f} % of the step, expected {:.1f} %: {}, where F takes {} and "
            "B {}",
            100 * seen, 100 * expected, bubble_formula(setting.schedule), durations.forward,
            durations.backward);
    }
    return std::string();
  });
}

Verdict judge_memory(const Run& run) {
  return first_fault(run, true, [](const Schedule& schedule, const Setting& setting) {
    const std::vector<int> kept = most_in_flight(schedule);
    for (int rank = 0; rank < setting.ranks; ++rank)
      if (const int expected = *in_flight_by_formula(setting, rank); kept[rank] > expected)
        return fmt::format(
            "rank {} keeps the activations of {} micro-batches at once, expected at most {}: {}",
            rank, kept[rank], expected, in_flight_formula(setting.schedule));
    return std::string();
  });
}

// ---- The run: the gradients have the bits of a single process ----

int micro_batches_in(int world) {
  return 2 * world + 1;
}

Json collect_gradients(World& world) {
  Json gradients;
  for (const char* name : names) {
    world.doing(fmt::format("a step of {} by your schedule", name));
    const Schedule lowered =
        lower(student_schedule(name, world.size(), micro_batches_in(world.size())));
    gradients[name] = gradients_of_step(lowered, world);
  }
  return gradients;
}

Verdict judge_gradients(const Run& run) {
  const Json expected = gradients_of_single(run.world, micro_batches_in(run.world), run.seed);
  for (const char* name : names)
    for (int rank = 0; rank < run.world; ++rank)
      if (const std::string found = difference(run.ranks[rank].at(name), expected); !found.empty())
        return {{fmt::format("{}, rank {}: {}", name, rank, found)}};
  return {};
}

void by_program() {
  answer_by_program(student_gpipe, "gpipe");
  answer_by_program(student_one_f_one_b, "one_f_one_b");
}

const Judge judge("26-pipeline-schedule",
                  {{"complete", collect_schedules, judge_complete},
                   {"deadlock", collect_schedules, judge_deadlock},
                   {"bubble", collect_schedules, judge_bubble},
                   {"memory", collect_schedules, judge_memory},
                   {"gradients", collect_gradients, judge_gradients}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises

// Judges a training step as a graph: what may be captured, what each replay reads, and how long it
// takes.
#include <algorithm>

#include "exercises/39-graphs/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

struct Work {
  int layers, steps;
  std::string text() const { return fmt::format("{} layers, {} steps", layers, steps); }
};
constexpr Work works[] = {{1, 1}, {1, 4}, {3, 3}, {5, 6}, {8, 20}};

Json collect(World& world) {
  Json all = Json::array();
  for (const Work& each : works) {
    world.doing("train: " + each.text());
    gpu::EmulatedTraining device(each.layers, each.steps);
    student_train(device, each.layers, each.steps);
    const gpu::TrainingSeen seen = device.seen();
    all.push_back({{"capture_fault", seen.capture_fault},
                   {"step_fault", seen.step_fault},
                   {"makespan", seen.makespan},
                   {"calls", seen.calls},
                   {"host_waits", seen.host_waits}});
  }
  return all;
}

template <const auto& fault>
Verdict judge_fault(const Run& run) {
  for (std::size_t n = 0; n < std::size(works); ++n)
    if (const std::string says = run.ranks[0].at(n).at(fault); !says.empty())
      return {{works[n].text() + ": " + says}};
  return {};
}
constexpr char capture_fault[] = "capture_fault", step_fault[] = "step_fault";

// A step without a graph makes 6 L + 4 calls: copies of batch and rate; for each layer forward,
// backward, record, wait, reduce and update; one more record and wait. Two of them are allowed, for
// a warm-up and the capture, and 6 calls for each step.
Verdict judge_calls(const Run& run) {
  for (std::size_t n = 0; n < std::size(works); ++n) {
    const Json& seen = run.ranks[0].at(n);
    const auto& [layers, steps] = works[n];
    const int calls = seen.at("calls"), most = 2 * (6 * layers + 4) + 6 * steps;
    if (calls > most)
      return {
          {fmt::format("{}: the host makes {} calls, expected at most {}: two times a step, "
                       "and 6 for each replay",
                       works[n].text(), calls, most)}};
    if (const int waits = seen.at("host_waits"); waits > 3)
      return {{fmt::format("{}: the host waits {} times, expected at most 3, at the end",
                           works[n].text(), waits)}};
  }
  return {};
}

// Forward, backward beside the reductions, then all updates; the copies come first.
double least_step(int layers) {
  double now = gpu::duration_of(0, 0) * 2, reduced = 0;
  for (int layer = 0; layer < layers; ++layer) now += gpu::duration_of(1, layer);
  for (int layer = layers - 1; layer >= 0; --layer) {
    now += gpu::duration_of(2, layer);
    reduced = std::max(reduced, now) + gpu::duration_of(3, layer);
  }
  for (int layer = 0; layer < layers; ++layer) reduced += gpu::duration_of(4, layer);
  return reduced;
}

Verdict judge_overlap(const Run& run) {
  for (std::size_t n = 0; n < std::size(works); ++n) {
    const auto& [layers, steps] = works[n];
    const double least = least_step(layers) * steps, seen = run.ranks[0].at(n).at("makespan");
    if (seen > least * 1.05)
      return {
          {fmt::format("{}: it takes {:.1f}, expected {:.1f}, with the reduction of one layer "
                       "beside backward of the next",
                       works[n].text(), seen, least)}};
  }
  return {};
}

const Judge judge("39-graphs", {{"capture", collect, judge_fault<capture_fault>},
                                {"steps", collect, judge_fault<step_fault>},
                                {"calls", collect, judge_calls},
                                {"overlap", collect, judge_overlap}});

}  // namespace
}  // namespace ringside::exercises

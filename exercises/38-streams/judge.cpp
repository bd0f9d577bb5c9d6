// Judges copies beside kernels: what streams and events put in order, and how long it takes.
#include <algorithm>

#include "exercises/38-streams/interface.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

struct Work {
  int chunks, slots;
  std::string text() const { return fmt::format("{} chunks, {} slots", chunks, slots); }
};
constexpr Work works[] = {{1, 1}, {3, 1}, {4, 2}, {7, 3}, {2, 5}, {12, 3}, {12, 4}};

Json collect(World& world) {
  Json all = Json::array();
  for (const Work& each : works) {
    world.doing("process: " + each.text());
    gpu::EmulatedDevice device(each.chunks, each.slots, {world.seed()});
    student_process(device, each.chunks, each.slots);
    const gpu::StreamsSeen seen = device.seen();
    all.push_back(
        {{"fault", seen.fault}, {"makespan", seen.makespan}, {"host_waits", seen.host_waits}});
  }
  return all;
}

Verdict judge_order(const Run& run) {
  for (std::size_t n = 0; n < std::size(works); ++n)
    if (const std::string fault = run.ranks[0].at(n).at("fault"); !fault.empty())
      return {{works[n].text() + ": " + fault}};
  return {};
}

// Each operation begins when the one before it with this chunk, the one before it of its kind, and
// the last one in its slot have ended.
double least_makespan(const Work& work, const gpu::Durations& durations) {
  std::vector<double> left;
  double ends[3] = {};
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    double ready = chunk < work.slots ? 0 : left[static_cast<std::size_t>(chunk - work.slots)];
    for (int kind = 0; kind < 3; ++kind)
      ready = ends[kind] = std::max(ends[kind], ready) + durations.of(kind, chunk);
    left.push_back(ready);
  }
  return ends[2];
}

Verdict judge_overlap(const Run& run) {
  for (std::size_t n = 5; n < std::size(works); ++n) {
    const Json& seen = run.ranks[0].at(n);
    const double least = least_makespan(works[n], {run.seed}), makespan = seen.at("makespan");
    if (makespan > least * 1.05)
      return {
          {fmt::format("{}: it takes {:.1f}, expected {:.1f}, with copies in both directions and "
                       "kernels side by side; the host waits {} times",
                       works[n].text(), makespan, least, seen.at("host_waits").get<int>())}};
  }
  return {};
}

Verdict judge_host(const Run& run) {
  for (std::size_t n = 0; n < std::size(works); ++n) {
    const int waits = run.ranks[0].at(n).at("host_waits"), most = 3;
    if (waits > most)
      return {{fmt::format("{}: the host waits {} times, expected at most {}, at the end",
                           works[n].text(), waits, most)}};
  }
  return {};
}

const Judge judge("38-streams", {{"order", collect, judge_order},
                                 {"overlap", collect, judge_overlap},
                                 {"host", collect, judge_host}});

}  // namespace
}  // namespace ringside::exercises

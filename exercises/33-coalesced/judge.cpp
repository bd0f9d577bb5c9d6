// Judges a copy and a transpose: the numbers, and what a warp asks memory for.
#include "base/random.hpp"
#include "exercises/33-coalesced/interface.hpp"
#include "exercises/judge/gpu/judged.hpp"

namespace ringside::exercises {
namespace {

std::vector<float> random_numbers(std::uint64_t seed, std::int64_t n) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < n; ++i)
    all.push_back(static_cast<float>(random_uniform(seed, 33, static_cast<std::uint64_t>(i))));
  return all;
}

// ---- Copies ----

struct Copy {
  std::int64_t n, blocks;
  int threads, to_offset = 0, from_offset = 0;
  std::string text(bool last_first) const {
    return fmt::format(
        "{} numbers, {} blocks of {} threads, {}, from and to begin {} and {} bytes "
        "behind a multiple of 16",
        n, blocks, threads, turns_text(last_first), from_offset * 4, to_offset * 4);
  }
};
constexpr Copy copies[] = {{1, 1, 32},          {128, 1, 32},       {1027, 2, 64}, {1027, 2, 64, 1},
                           {1030, 3, 32, 0, 3}, {515, 2, 32, 2, 2}, {2, 4, 32}};
constexpr Copy large_copies[] = {{20000, 4, 128}, {20000, 4, 128, 1, 1}};

template <const auto& all>
Json collect_copies(World& world) {
  Json seen = Json::array();
  for (const Copy& each : all)
    for (const bool last_first : {false, true}) {
      world.doing("copy: " + each.text(last_first));
      GpuNumbers<float> to("to", each.n, each.to_offset),
          from("from", random_numbers(world.seed(), each.n), each.from_offset);
      const gpu::Report report = gpu::launch(
          {each.blocks, each.threads, 0, last_first},
          [&](gpu::EmulatedThread& gpu) { student_copy(gpu, to.global(), from.global()); });
      seen.push_back({{"to", to.json()}, {"report", json_of(report)}});
    }
  return seen;
}

Verdict judge_copies(const Run& run) {
  std::size_t at = 0;
  for (const Copy& each : copies)
    for (const bool last_first : {false, true}) {
      const std::vector<float> from = random_numbers(run.seed, each.n);
      if (const std::string fault =
              fault_of_numbers("to", run.ranks[0].at(at++).at("to"), {from.begin(), from.end()}, 0);
          !fault.empty())
        return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

Verdict judge_sectors(const Run& run) {
  std::size_t at = 0;
  for (const Copy& each : large_copies)
    for (const bool last_first : {false, true}) {
      const Json& report = run.ranks[0].at(at++).at("report");
      if (const std::string fault = fault_of_sectors(report); !fault.empty())
        return {{each.text(last_first) + ": " + fault}};
      const std::int64_t bytes = each.from_offset == 0 ? 16 : 4;  // of a lane's request
      const std::int64_t most = each.n * 4 / (32 * bytes) * 5 / 4;
      for (const bool writes : {false, true}) {
        const char* const name = writes ? "to" : "from";
        const RequestsSeen seen = requests_of(report, name, writes);
        if (seen.requests > most)
          return {{fmt::format(
              "{}: {} is {} in {} requests of a warp, expected at most {}: a lane can ask for {} "
              "bytes at once",
              each.text(last_first), name, writes ? "written" : "read", seen.requests, most,
              bytes)}};
        if (seen.bytes > each.n * 4)
          return {{fmt::format("{}: {} bytes of {} are {}, expected {}", each.text(last_first),
                               seen.bytes, name, writes ? "written" : "read", each.n * 4)}};
      }
    }
  return {};
}

// ---- Transposes ----

struct Shape {
  std::int64_t rows, columns, blocks;
  int threads;
  std::string text(bool last_first) const {
    return fmt::format("{} x {} numbers, {} blocks of {} threads, {}", rows, columns, blocks,
                       threads, turns_text(last_first));
  }
};
constexpr Shape shapes[] = {{1, 1, 1, 32},    {32, 32, 1, 64},  {33, 70, 2, 64},
                            {70, 33, 1, 128}, {5, 100, 3, 256}, {96, 64, 2, 256}};

Json collect_transposes(World& world) {
  Json seen = Json::array();
  for (const Shape& each : shapes)
    for (const bool last_first : {false, true}) {
      world.doing("transpose: " + each.text(last_first));
      GpuNumbers<float> to("to", each.rows * each.columns),
          from("from", random_numbers(world.seed(), each.rows * each.columns));
      const gpu::Report report = gpu::launch(
          {each.blocks, each.threads, 32 * 33, last_first}, [&](gpu::EmulatedThread& gpu) {
            student_transpose(gpu, to.global(), from.global(), each.rows, each.columns);
          });
      seen.push_back({{"to", to.json()}, {"report", json_of(report)}});
    }
  return seen;
}

Verdict judge_transposes(const Run& run) {
  std::size_t at = 0;
  for (const Shape& each : shapes)
    for (const bool last_first : {false, true}) {
      const std::vector<float> from = random_numbers(run.seed, each.rows * each.columns);
      std::vector<double> expected;
      for (std::int64_t c = 0; c < each.columns; ++c)
        for (std::int64_t r = 0; r < each.rows; ++r)
          expected.push_back(from[static_cast<std::size_t>(r * each.columns + c)]);
      if (const std::string fault =
              fault_of_numbers("to", run.ranks[0].at(at++).at("to"), expected, 0);
          !fault.empty())
        return {{each.text(last_first) + ": " + fault}};
    }
  return {};
}

template <std::string (*fault_of)(const Json& report)>
Verdict judge_memory(const Run& run) {
  const Shape& each = shapes[5];  // whole tiles
  const Json& report = run.ranks[0].at(10).at("report");
  if (const std::string fault = fault_of(report); !fault.empty())
    return {{each.text(false) + ": " + fault}};
  const RequestsSeen seen = requests_of(report, "from", false);
  const std::int64_t most = each.rows * each.columns / 32;
  if (seen.requests <= most) return {};
  return {{fmt::format("{}: from is read in {} requests of a warp, expected at most {}",
                       each.text(false), seen.requests, most)}};
}

const Judge judge("33-coalesced", {{"copy", collect_copies<copies>, judge_copies},
                                   {"sectors", collect_copies<large_copies>, judge_sectors},
                                   {"transpose", collect_transposes, judge_transposes},
                                   {"tiles", collect_transposes, judge_memory<fault_of_sectors>},
                                   {"banks", collect_transposes, judge_memory<fault_of_banks>}});

}  // namespace
}  // namespace ringside::exercises

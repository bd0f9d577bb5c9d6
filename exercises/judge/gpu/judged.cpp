#include "exercises/judge/gpu/judged.hpp"

#include <cmath>

#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {

template <class T>
Json GpuNumbers<T>::json() const {
  const T* const first = const_cast<GpuNumbers*>(this)->data();
  Json all = Json::array();
  for (std::int64_t i = 0; i < size_; ++i) all.push_back(json_of(static_cast<float>(first[i])));
  return all;
}
template class GpuNumbers<float>;
template class GpuNumbers<int>;
template class GpuNumbers<gpu::Bf16>;

Json json_of(const gpu::Report& report) {
  Json lines = Json::array();
  for (const gpu::Requests& each : report.lines)
    lines.push_back({{"name", each.name},
                     {"line", each.line},
                     {"writes", each.writes},
                     {"requests", each.requests},
                     {"bytes", each.bytes},
                     {"sectors", each.sectors},
                     {"sectors_needed", each.sectors_needed},
                     {"passes", each.passes}});
  return {{"lines", lines},
          {"syncs", report.syncs},
          {"shared_loads", report.shared_loads},
          {"loads_under_copies", report.loads_under_copies}};
}

const char* turns_text(bool last_first) {
  return last_first ? "last thread first" : "thread 0 first";
}

std::string fault_of_numbers(const std::string& name, const Json& seen,
                             const std::vector<double>& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double x = number_of(seen.at(i));
    if (std::abs(x - expected[i]) <= tolerance * (1 + std::abs(expected[i]))) continue;
    return fmt::format("{}[{}] is {:.7g}, expected {:.7g}{}", name, i, x, expected[i],
                       std::isnan(x) ? "; memory that nobody has written is nan" : "");
  }
  return "";
}

namespace {
std::string requests_text(const Json& line) {
  return fmt::format("line {} {} {} in {} requests of a warp", line.at("line").get<int>(),
                     line.at("writes") ? "writes" : "reads", line.at("name").get<std::string>(),
                     line.at("requests").get<std::int64_t>());
}
bool is_shared(const Json& line) {
  return line.at("name") == "shared memory";
}
}  // namespace

std::string GpuRows::text(bool last_first) const {
  return fmt::format("{} rows of {} numbers, {} blocks of {} threads, {}", rows, n, blocks, threads,
                     turns_text(last_first));
}

std::string fault_of_syncs(const Json& report, const char* function, int calls) {
  const int syncs = report.at("syncs");
  if (syncs <= 2 * calls) return "";
  return fmt::format(
      "1024 threads: {} calls of {} call sync() {} times, expected at most 2 for each", calls,
      function, syncs);
}

std::string fault_of_sectors(const Json& report) {
  for (const Json& line : report.at("lines")) {
    const std::int64_t sectors = line.at("sectors"), needed = line.at("sectors_needed");
    if (is_shared(line) || sectors <= needed + line.at("requests").get<std::int64_t>()) continue;
    return fmt::format(
        "{}, which touch {} sectors of 32 bytes where {} would do: neighbouring lanes should ask "
        "for neighbouring numbers",
        requests_text(line), sectors, needed);
  }
  return "";
}

std::string fault_of_banks(const Json& report) {
  for (const Json& line : report.at("lines")) {
    const std::int64_t passes = line.at("passes"), requests = line.at("requests");
    if (!is_shared(line) || passes == requests) continue;
    return fmt::format("{}, which take {} passes: lanes ask one bank for different words",
                       requests_text(line), passes);
  }
  return "";
}

RequestsSeen requests_of(const Json& report, const std::string& name, bool writes) {
  RequestsSeen seen;
  for (const Json& line : report.at("lines"))
    if (line.at("name") == name && line.at("writes") == writes) {
      seen.requests += line.at("requests").get<std::int64_t>();
      seen.bytes += line.at("bytes").get<std::int64_t>();
    }
  return seen;
}

}  // namespace ringside::exercises

#include "planning/machine.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "planning/data/embedded.hpp"
#include "planning/json_fields.hpp"

namespace ringside::planning {
namespace {

Level read_level(JsonFields fields) {
  Level level{.name = fields.text("name"),
              .group = fields.count("group"),
              .bytes_per_second = fields.number("gbps", range::positive) * 1e9,
              .latency = fields.number("us", range::not_negative, 0) * 1e-6,
              .efficiency = fields.number("efficiency", range::share, 1),
              .in_network_efficiency = fields.number("in_network_efficiency", range::share, 0),
              .oversubscription = fields.number("oversubscription", range::at_least_one, 1),
              .rails = fields.flag("rails", false)};
  fields.done();
  return level;
}

std::vector<EfficiencyAt> read_efficiencies(JsonFields& device, const std::string& place) {
  std::vector<EfficiencyAt> rows;
  if (!device.has("matmul_efficiency_by_width")) return rows;
  require(!device.has("matmul_efficiency"),
          "{}device has both matmul_efficiency and matmul_efficiency_by_width: leave out one",
          place);
  for (JsonFields& row : device.list("matmul_efficiency_by_width")) {
    rows.push_back(
        {row.number("width", range::positive), row.number("efficiency", range::share, 1)});
    row.done();
    const std::size_t last = rows.size() - 1;
    const double before = last > 0 ? rows[last - 1].width : 0;
    require(rows[last].width > before,
            "{}device.matmul_efficiency_by_width[{}].width is {:g}, but widths rise: more than the "
            "{:g} of the row before is expected",
            place, last, rows[last].width, before);
  }
  return rows;
}

Machine read_machine(const Json& json, const std::string& name, const std::string& place) {
  JsonFields fields(json, place);
  Machine machine;
  machine.name = name;
  machine.source = fields.text("source", name);
  machine.estimates = fields.text("estimates", "");
  JsonFields device = fields.object("device");
  machine.peak = device.number("peak_tflops", range::positive) * 1e12;
  machine.memory = device.number("memory_gb", range::positive) * 1e9;
  machine.memory_bandwidth = device.number("memory_gbps", range::positive) * 1e9;
  machine.matmul_efficiency = device.number("matmul_efficiency", range::share, 1);
  machine.kernel_seconds = device.number("kernel_us", range::not_negative, 0) * 1e-6;
  machine.matmul_efficiency_by_width = read_efficiencies(device, place);
  machine.memory_efficiency = device.number("memory_efficiency", range::share, 1);
  machine.overlap = device.number("overlap", range::share_or_none, 1);
  device.done();
  for (JsonFields& level : fields.list("levels")) machine.levels.push_back(read_level(level));
  fields.done();
  require(
      machine.levels.front().oversubscription == 1,
      "{}levels[0].oversubscription is {:g}, but the innermost level joins devices, which cannot "
      "be oversubscribed: move it to the level above",
      place, machine.levels.front().oversubscription);
  require(!machine.levels.front().rails,
          "{}levels[0].rails is true, but the innermost level joins devices, and rails join groups "
          "of devices: move it to the level above",
          place);
  for (std::size_t i = 1; i < machine.levels.size(); ++i)
    require(machine.levels[i].group > machine.levels[i - 1].group,
            "{}levels[{}].group is {}, but levels go from the inside out: more than the {} of "
            "levels[{}] is expected",
            place, i, machine.levels[i].group, machine.levels[i - 1].group, i - 1);
  return machine;
}

}  // namespace

const Level& Machine::level_for(std::int64_t devices) const {
  return levels[level_index_for(devices)];
}

std::size_t Machine::level_index_for(std::int64_t devices) const {
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (devices <= levels[i].group) return i;
  fail("the plan needs {} devices, but {} has {}: its widest level is {}", devices, name,
       levels.back().group, levels.back().name);
}

Level Machine::level_along(std::size_t index, std::int64_t stride) const {
  Level level = levels[index];
  if (level.rails && stride % levels[index - 1].group == 0) level.oversubscription = 1;
  return level;
}

std::int64_t Machine::ranks_on_server(std::int64_t count, std::int64_t stride) const {
  return std::clamp<std::int64_t>(levels.front().group / stride, 1, count);
}

Level Machine::level_of_ring(std::size_t index, std::int64_t count, std::int64_t stride) const {
  Level ring = level_along(index, stride);
  const std::int64_t channels = ranks_on_server(count, stride);
  if (index == 0) return ring;
  ring.bytes_per_second *= static_cast<double>(channels);
  // Of the k ranks that a ring has in a group of the level below, only as many leave it as there
  // are channels. So the rings of all devices of the group send less than its ports could.
  const auto share_uplinks = [&](Level& level, std::size_t i) {
    if (level.rails && channels > 1) level.oversubscription = 1;  // each channel stays on its rail
    const std::int64_t k = std::clamp<std::int64_t>(levels[i - 1].group / stride, channels, count);
    level.oversubscription = std::max(
        1.0, level.oversubscription * static_cast<double>(channels) / static_cast<double>(k));
  };
  share_uplinks(ring, index);
  // Of all hops, those that leave a group of level i - 1.
  double latency = 0;
  std::int64_t hops = count;
  for (std::size_t i = 0; i <= index; ++i) {
    const std::int64_t group = levels[i].group,
                       leaving = i == index ? 0 : (count * stride + group - 1) / group;
    latency += static_cast<double>(hops - std::min(hops, leaving)) * levels[i].latency;
    hops = std::min(hops, leaving);
    if (i == index || levels[i].group < 2 * stride) continue;
    Level inside = level_along(i, stride);
    if (i > 0) inside.bytes_per_second *= static_cast<double>(channels), share_uplinks(inside, i);
    if (inside.rate() >= ring.rate()) continue;
    ring.bytes_per_second = inside.bytes_per_second, ring.efficiency = inside.efficiency;
    ring.oversubscription = inside.oversubscription;
  }
  ring.latency = latency / static_cast<double>(count);
  return ring;
}

double Machine::tree_latency(std::size_t index, std::int64_t count, std::int64_t stride) const {
  if (index == 0) return 0;
  const auto inside = static_cast<double>(ranks_on_server(count, stride)),
             depth = std::ceil(std::log2(static_cast<double>(count) / inside));
  return 2 * (depth * levels[index].latency + (inside - 1) * levels.front().latency);
}

double Machine::matmul_efficiency_at(double width) const {
  const std::vector<EfficiencyAt>& rows = matmul_efficiency_by_width;
  if (rows.empty()) return matmul_efficiency;
  if (width <= rows.front().width) return rows.front().efficiency;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const EfficiencyAt &below = rows[i - 1], &above = rows[i];
    if (width > above.width) continue;
    const double way = std::log(width / below.width) / std::log(above.width / below.width);
    return below.efficiency + way * (above.efficiency - below.efficiency);
  }
  return rows.back().efficiency;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : embedded_machines()) names.push_back(name);
  return names;
}

Machine find_machine(const std::string& name) {
  for (const auto& [known, text] : embedded_machines())
    if (known == name)
      return read_machine(parse_json(text, name + ".json"), name, name + ".json: ");
  require(std::filesystem::exists(name),
          "there is no machine or file named '{}'{}; machines: {}; or give the path of a JSON file",
          name, did_you_mean(name, machine_names()), fmt::join(machine_names(), ", "));
  return read_machine(read_json_file(name), name, name + ": ");
}

}  // namespace ringside::planning

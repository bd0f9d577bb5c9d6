#include "planning/machine.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/words.hpp"
#include "planning/data/embedded.hpp"
#include "planning/json_fields.hpp"

namespace ringside::planning {
namespace {

Level read_level(JsonFields fields) {
  Level level{.name = fields.text("name"),
              .group = fields.count("group"),
              .bytes_per_second = fields.positive("gbps") * 1e9,
              .latency = fields.not_negative("us", 0) * 1e-6,
              .efficiency = fields.share("efficiency", 1),
              .in_network_efficiency = fields.share("in_network_efficiency", 0),
              .oversubscription = fields.at_least_one("oversubscription", 1)};
  fields.done();
  return level;
}

Machine read_machine(const nlohmann::json& json, const std::string& name,
                     const std::string& place) {
  JsonFields fields(json, place);
  Machine machine;
  machine.name = name;
  machine.source = fields.text("source", name);
  JsonFields device = fields.object("device");
  machine.peak = device.positive("peak_tflops") * 1e12;
  machine.memory = device.positive("memory_gb") * 1e9;
  machine.memory_bandwidth = device.positive("memory_gbps") * 1e9;
  machine.matmul_efficiency = device.share("matmul_efficiency", 1);
  machine.memory_efficiency = device.share("memory_efficiency", 1);
  machine.overlap = device.share_or_none("overlap", 1);
  device.done();
  for (JsonFields& level : fields.list("levels")) machine.levels.push_back(read_level(level));
  fields.done();
  require(
      machine.levels.front().oversubscription == 1,
      "{}levels[0].oversubscription is {:g}, but the innermost level joins devices, which cannot "
      "be oversubscribed: move it to the level above",
      place, machine.levels.front().oversubscription);
  for (std::size_t i = 1; i < machine.levels.size(); ++i)
    require(machine.levels[i].group > machine.levels[i - 1].group,
            "{}levels[{}].group is {}, but levels go from the inside out: more than the {} of "
            "levels[{}] is expected",
            place, i, machine.levels[i].group, machine.levels[i - 1].group, i - 1);
  return machine;
}

}  // namespace

const Level& Machine::level_for(std::int64_t devices) const {
  for (const Level& level : levels)
    if (devices <= level.group) return level;
  fail("the plan needs {} devices, but {} has {}: its widest level is {}", devices, name,
       levels.back().group, levels.back().name);
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

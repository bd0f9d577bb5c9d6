#include "planning/plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/words.hpp"
#include "pipeline_parallel/schedule.hpp"

namespace ringside::planning {
namespace {

const std::vector<std::string> axis_names = {"pp", "dp", "fsdp", "tp"};

std::size_t position_of(std::string_view name, const std::vector<std::string>& names,
                        const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  require(found != names.end(), "there is no {} named '{}'{}; known are {}", what, name,
          did_you_mean(name, names), fmt::join(names, ", "));
  return static_cast<std::size_t>(found - names.begin());
}

Mesh::Axis parse_axis(std::string_view text) {
  const auto equals = text.find('=');
  Mesh::Axis axis{std::string(text.substr(0, equals)), 0};
  position_of(axis.name, axis_names, "mesh axis");
  const std::string_view number = equals == text.npos ? "" : text.substr(equals + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), axis.size);
  require(error == std::errc() && end == number.data() + number.size() && axis.size >= 1 &&
              axis.size <= 1'000'000,
          "the mesh axis '{}' needs a size from 1 to 1000000, as in {}=4", text, axis.name);
  return axis;
}

}  // namespace

std::int64_t Mesh::size(std::string_view name) const {
  for (const Axis& axis : axes)
    if (axis.name == name) return axis.size;
  return 1;
}

std::int64_t Mesh::devices() const {
  std::int64_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

std::int64_t Mesh::span(std::string_view name) const {
  std::int64_t product = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    product *= axis->size;
    if (axis->name == name) return product;
  }
  return 1;
}

Mesh parse_mesh(std::string_view text) {
  Mesh mesh;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const Mesh::Axis axis = parse_axis(text.substr(0, comma));
    const bool repeated = std::any_of(mesh.axes.begin(), mesh.axes.end(),
                                      [&](const auto& other) { return other.name == axis.name; });
    require(!repeated, "the mesh names the axis {} twice", axis.name);
    mesh.axes.push_back(axis);
    require(mesh.devices() <= 100'000'000, "the mesh has more than 100000000 devices");
    text = comma == text.npos ? "" : text.substr(comma + 1);
  }
  return mesh;
}

std::string to_text(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const Mesh::Axis& axis : mesh.axes)
    parts.push_back(fmt::format("{}={}", axis.name, axis.size));
  return parts.empty() ? "one device" : fmt::format("{}", fmt::join(parts, ","));
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
  return names;
}

const std::vector<std::string>& recompute_names() {
  static const std::vector<std::string> names = {"none", "selective", "full"};
  return names;
}

Schedule schedule_named(std::string_view name) {
  return static_cast<Schedule>(position_of(name, schedule_names(), "schedule"));
}

Recompute recompute_named(std::string_view name) {
  return static_cast<Recompute>(position_of(name, recompute_names(), "recomputation"));
}

std::string_view name_of(Schedule schedule) {
  return schedule_names()[static_cast<std::size_t>(schedule)];
}

std::string_view name_of(Recompute recompute) {
  return recompute_names()[static_cast<std::size_t>(recompute)];
}

double bytes_of_type(std::string_view name) {
  static constexpr std::array<double, 3> bytes = {2, 2, 4};
  return bytes[position_of(name, {"bf16", "fp16", "fp32"}, "type")];
}

std::int64_t blocks_of_stage(const Model& model, const Plan& plan, std::int64_t index) {
  return pipeline_parallel::layers_of_stage(model.layers, static_cast<int>(plan.mesh.size("pp")),
                                            static_cast<int>(index))
      .count();
}

void validate(const Plan& plan, const Model& model) {
  const std::int64_t t = plan.mesh.size("tp"), p = plan.mesh.size("pp");
  require(model.has_blocks() || (t == 1 && p == 1),
          "only the state of {} can be accounted for, and only with the axes dp and fsdp: leave "
          "out tp and pp",
          model.name);
  if (!model.has_blocks()) return;
  require(model.heads % t == 0, "the {} heads of {} do not divide by tp={}", model.heads,
          model.name, t);
  require(model.d_ff % t == 0, "d_ff {} of {} does not divide by tp={}", model.d_ff, model.name, t);
  require(model.kv_heads % t == 0 || t % model.kv_heads == 0,
          "the {} key and value heads of {} can neither be divided nor replicated evenly over "
          "tp={}",
          model.kv_heads, model.name, t);
  require(p <= model.layers, "pp={} has more stages than {} has blocks ({})", p, model.name,
          model.layers);
  const bool in_chunks = plan.schedule == Schedule::interleaved || plan.schedule == Schedule::zb_v;
  require(plan.schedule == Schedule::interleaved || plan.chunks == 1,
          "--chunks {} needs --schedule interleaved, not {}", plan.chunks, name_of(plan.schedule));
  const std::int64_t chunks = plan.schedule == Schedule::zb_v ? 2 : plan.chunks;
  require(!in_chunks || model.layers % (p * chunks) == 0,
          "the {} blocks of {} do not divide into pp={} stages of {} chunks", model.layers,
          model.name, p, chunks);
  require(plan.schedule != Schedule::interleaved || plan.micro_batches % p == 0,
          "the interleaved schedule needs a multiple of pp={} micro-batches, not {}", p,
          plan.micro_batches);
  require(plan.zero < 3 || plan.mesh.size("dp") == 1 || plan.mesh.size("fsdp") == 1,
          "both --zero 3 and the axis fsdp shard the parameters: leave out one of them");
  require(!plan.sequence_parallel || t > 1,
          "--sequence-parallel needs tensor parallel: tp=2 or "
          "more in --mesh");
  require(!plan.sequence_parallel || plan.sequence % t == 0,
          "sequence parallel divides a sequence of {} tokens by tp={}, which leaves a remainder",
          plan.sequence, t);
}

}  // namespace ringside::planning

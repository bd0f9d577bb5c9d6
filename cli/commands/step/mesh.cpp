// `ringside step mesh`: shows what each axis of a mesh divides, its groups of ranks, and its calls.
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/wrap.hpp"
#include "parallel/mesh_shape.hpp"

namespace ringside::cli {

namespace {

using parallel::AxisEntry;
using parallel::MeshShape;

struct Arguments {
  std::string mesh, json;
};

// The groups along an axis, each once, in the order of their first ranks.
std::vector<std::vector<int>> groups_along(const MeshShape& shape, parallel::Axis axis) {
  std::set<std::vector<int>> groups;
  for (int rank = 0; rank < shape.ranks(); ++rank)
    if (shape.coordinate(rank, axis) == 0) groups.insert(shape.members(rank, axis));
  return {groups.begin(), groups.end()};
}

std::string in_words(const std::vector<std::vector<int>>& groups) {
  constexpr std::size_t shown = 8;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(groups.size(), shown); ++i)
    texts.push_back(fmt::format("{}", fmt::join(groups[i], " ")));
  return fmt::format("{}{}", fmt::join(texts, " | "), groups.size() > shown ? " | ..." : "");
}

void show(const Arguments& args) {
  const bool given = !args.mesh.empty();
  const MeshShape shape = given ? MeshShape(args.mesh) : MeshShape();
  std::string text;
  if (given)
    text = wrap(fmt::format("--mesh {}: {} ranks, {} of them with parts of one model, {} shares of "
                            "the batch",
                            shape.text(), shape.ranks(), shape.model_members(0).size(),
                            shape.data_ranks()),
                80) +
           "\n";
  Json axes = Json::array();
  for (const AxisEntry& entry : parallel::all_axes()) {
    if (given && shape.size(entry.axis) == 1) continue;
    const auto groups = groups_along(shape, entry.axis);
    text += fmt::format(
        "\n{:<5} {}{}\n      divides    {}\n      calls      {}\n      gradients  {}\n", entry.name,
        entry.meaning, given ? fmt::format(", {} ranks", shape.size(entry.axis)) : "", entry.part,
        entry.calls, entry.gradients);
    if (given) text += fmt::format("      groups     {}\n", in_words(groups));
    Json axis = {{"axis", entry.name},
                 {"meaning", entry.meaning},
                 {"divides", entry.part},
                 {"calls", entry.calls},
                 {"gradients", entry.gradients}};
    if (given) axis["size"] = shape.size(entry.axis), axis["groups"] = groups;
    axes.push_back(std::move(axis));
  }
  stream_beside(args.json) << (given ? text : text.substr(1));
  if (!args.json.empty()) write_json_file(args.json, {{"mesh", args.mesh}, {"axes", axes}});
}

}  // namespace

void add_step_mesh_command(CLI::App& step) {
  const auto [option, args] = add_command(
      step, "mesh", "Show what the axes of a mesh divide, their groups and calls", show);
  option("--mesh AXES", args.mesh, "A mesh, such as dp=2,fsdp=2,tp=2 [the axes that there are]");
  add_json_option(option, args.json);
}

}  // namespace ringside::cli

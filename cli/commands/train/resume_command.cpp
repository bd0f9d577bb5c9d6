#include "cli/commands/train/resume_command.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/environment.hpp"
#include "base/text/words.hpp"
#include "cli/launcher/ranks.hpp"
#include "training/plan/options.hpp"

namespace ringside::cli {
namespace {

namespace fs = std::filesystem;

// The options that the checkpoint has, or that say where it is.
std::set<std::string> left_out() {
  training::Plan plan;
  std::set<std::string> names;
  for (const training::Option& row : training::options_of(plan))
    if (row.kept == training::in_config || row.kept == training::in_folder)
      names.insert(row.flag_name());
  return names;
}

// How this program is called from here: by its name if PATH leads to it, else by its path, which is
// shorter from a folder above it.
std::string program_from_here() {
  const fs::path program = own_command().front();
  std::error_code ignored;
  std::istringstream folders(environment("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::equivalent(fs::path(folder) / "ringside", program, ignored)) return "ringside";
  const fs::path near = fs::relative(program, ignored);
  if (near.empty() || *near.begin() == "..") return for_shell(program);
  return for_shell(near.has_parent_path() ? near : "." / near);
}

}  // namespace

std::string command_to_resume(const CLI::App& train, const std::string& folder, bool stopped) {
  std::string command = program_from_here() + " train --resume " + for_shell(folder);
  std::set<std::string> done = left_out();  // or written already
  if (stopped) done.insert("--stop-at");
  for (const CLI::Option* option : train.parse_order()) {
    const std::string name = option->get_name();
    if (!done.insert(name).second) continue;
    command += name == "--ranks" ? " -n" : " " + name;
    if (option->get_items_expected_max() == 0) continue;  // a flag
    const std::vector<std::string>& values = option->results();
    const bool last_counts = option->get_items_expected_max() == 1;
    for (std::size_t i = last_counts ? values.size() - 1 : 0; i < values.size(); ++i)
      command += " " + for_shell(values[i]);
  }
  return command;
}

}  // namespace ringside::cli

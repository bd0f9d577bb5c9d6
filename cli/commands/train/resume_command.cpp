#include "cli/commands/train/resume_command.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

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

std::string command_to_resume(const std::vector<GivenOption>& given, const std::string& folder,
                              bool stopped) {
  std::string command = program_from_here() + " train --resume " + for_shell(folder);
  std::set<std::string> done = left_out();  // or written already
  if (stopped) done.insert("--stop-at");
  for (const auto& [name, values] : given) {
    if (!done.insert(name).second) continue;
    command += name == "--ranks" ? " -n" : " " + name;
    for (const std::string& value : values) command += " " + for_shell(value);
  }
  return command;
}

}  // namespace ringside::cli

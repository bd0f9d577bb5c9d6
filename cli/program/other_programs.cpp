#include "cli/program/other_programs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include <unistd.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "cli/launcher/processes/rank_process.hpp"
#include "cli/launcher/programs.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/program/program.hpp"

namespace ringside::cli {
namespace {

// What the program writes with `help --as json`, or nothing if it is not there.
std::vector<CommandText> told_by(const std::string& program) {
  if (!std::filesystem::exists(start_of(program).back())) return {};
  const std::string text = output_of(shell_start_of(program) + " help --as json 2>/dev/null");
  if (text.empty()) return {};
  return commands_from_json(text);
}

// A build in build/release has its programs in build/release/bin.
std::string how_to_build(const std::string& program) {
  const std::string preset = folder_of_programs().parent_path().filename();
  return fmt::format("cmake --build --preset {} --target {}", preset, program);
}

// Replaces this process by a program, with the same arguments.
[[noreturn]] void become(const std::string& program, std::string_view command) {
  std::vector<std::string> line = start_of(program);
  const std::vector<std::string> own = own_command();
  line.insert(line.end(), own.begin() + 1, own.end());
  // Python may call this program.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  if (program == "python") ::setenv("RINGSIDE_PROGRAM", self.c_str(), 1);
  ::execvp(line.front().c_str(), exec_arguments(line).data());
  require(errno == ENOENT, "cannot run {}: {}", line.front(), std::strerror(errno));
  require(program != "python",
          "`ringside {}` needs python3 here, which is not on PATH: install it (apt-get install "
          "python3)",
          command);
  fail("`ringside {}` is a command of the program {}, which is not in {}: build it ({})", command,
       program, folder_of_programs().string(), how_to_build(program));
}

}  // namespace

void become_program_with(std::string_view command) {
  if (const std::string program = program_of(command); !program.empty()) become(program, command);
}

void become_python(std::string_view command) {
  become("python", command);
}

CommandText command_of(const std::string& program, const std::string& command) {
  static std::map<std::string, std::vector<CommandText>> told;
  if (!told.contains(program)) told[program] = told_by(program);
  const auto found = std::ranges::find(told[program], command, &CommandText::name);
  if (found != told[program].end()) return *found;
  if (program == "python") return {.name = command, .description = "Needs python3"};
  return {.name = command, .description = "Not built: " + how_to_build(program)};
}

void describe_other_commands(CLI::App& ringside) {
  for (CLI::App* command : ringside.get_subcommands([](const CLI::App*) { return true; }))
    if (const std::string program = program_of(command->get_name()); !program.empty())
      command->description(command_of(program, command->get_name()).description);
}

}  // namespace ringside::cli

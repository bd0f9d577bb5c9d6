#include "cli/program/other_programs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include <unistd.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "cli/launcher/rank_process.hpp"
#include "cli/launcher/ranks.hpp"
#include "cli/program/program.hpp"

namespace ringside::cli {
namespace {

std::filesystem::path folder_of_programs() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

// A build in build/release has its programs in build/release/bin.
std::string how_to_build(const std::string& program) {
  const std::string preset = folder_of_programs().parent_path().filename();
  return fmt::format("cmake --build --preset {} --target {}", preset, program);
}

// What the program writes with `help --as json`, or nothing if it is not there.
std::vector<CommandText> told_by(const std::string& program) {
  const std::filesystem::path path = folder_of_programs() / program;
  if (::access(path.c_str(), X_OK) != 0) return {};
  const std::string command = "exec " + for_shell(path) + " help --as json";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  require(pipe != nullptr, "cannot run {}: {}", path.string(), std::strerror(errno));
  std::string text;
  char part[4096];
  while (const std::size_t count = std::fread(part, 1, sizeof part, pipe.get()))
    text.append(part, count);
  return commands_from_json(text);
}

}  // namespace

void become_program_with(std::string_view command) {
  const std::string program = program_of(command);
  if (program.empty()) return;
  std::vector<std::string> line = own_command();
  line.front() = folder_of_programs() / program;
  ::execv(line.front().c_str(), exec_arguments(line).data());
  require(errno == ENOENT, "cannot run {}: {}", line.front(), std::strerror(errno));
  fail("`ringside {}` is a command of the program {}, which is not in {}: build it ({})", command,
       program, folder_of_programs().string(), how_to_build(program));
}

CommandText command_of(const std::string& program, const std::string& command) {
  static std::map<std::string, std::vector<CommandText>> told;
  if (!told.contains(program)) told[program] = told_by(program);
  const auto found = std::ranges::find(told[program], command, &CommandText::name);
  if (found != told[program].end()) return *found;
  return {.name = command, .description = "Not built: " + how_to_build(program)};
}

void describe_other_commands(CLI::App& ringside) {
  for (CLI::App* command : ringside.get_subcommands([](const CLI::App*) { return true; }))
    if (const std::string program = program_of(command->get_name()); !program.empty())
      command->description(command_of(program, command->get_name()).description);
}

}  // namespace ringside::cli

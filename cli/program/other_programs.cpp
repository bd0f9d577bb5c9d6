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
#include "cli/pictures/text_file.hpp"
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

// The folder of the Python package: of this build, or of this installation.
std::filesystem::path python_folder() {
  const std::filesystem::path built = folder_of_programs().parent_path() / "python";
  if (std::filesystem::exists(built / "__main__.py")) return built;
  return folder_of_programs().parent_path() / "share/ringside/python";
}

// The words that start it: a program beside this one, or Python with the package of this build.
std::vector<std::string> start_of(const std::string& program) {
  if (program == "python") return {"python3", python_folder()};
  return {folder_of_programs() / program};
}

// A command line for a shell, which starts it.
std::string shell_start_of(const std::string& program) {
  std::string command = "exec";
  for (const std::string& word : start_of(program)) command += " " + for_shell(word);
  return command;
}

// What a command line writes to standard output.
std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  require(pipe != nullptr, "cannot run {}: {}", command, std::strerror(errno));
  std::string text;
  char part[4096];
  while (const std::size_t count = std::fread(part, 1, sizeof part, pipe.get()))
    text.append(part, count);
  return text;
}

// What the program writes with `help --as json`, or nothing if it is not there.
std::vector<CommandText> told_by(const std::string& program) {
  if (!std::filesystem::exists(start_of(program).back())) return {};
  const std::string text = output_of(shell_start_of(program) + " help --as json 2>/dev/null");
  if (text.empty()) return {};
  return commands_from_json(text);
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
          "`ringside {}` is a command in Python, and there is no python3 on PATH: install it "
          "(apt-get install python3)",
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

void write_svg_file(const std::string& path, const Json& picture, const char* what) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  require(file != nullptr, "cannot make a temporary file: {}", std::strerror(errno));
  fmt::print(file.get(), "{}", picture.dump());
  require(std::fflush(file.get()) == 0, "cannot write a temporary file: {}", std::strerror(errno));
  // Without python3 the shell says nothing.
  const std::string svg =
      output_of(fmt::format("command -v python3 >/dev/null && {} draw </proc/self/fd/{}",
                            shell_start_of("python"), ::fileno(file.get())));
  require(!svg.empty(),
          "cannot draw {}: Python draws it, and python3 wrote nothing; is it on PATH (apt-get "
          "install python3)?",
          what);
  write_text_file(path, svg, what);
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

#include "cli/launcher/programs.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "base/text/words.hpp"

namespace ringside::cli {

std::filesystem::path folder_of_programs() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

namespace {

// The folder that Python runs: of this build, of an exported course, whose architectures share it,
// of a wheel, where it is the package that the programs are part of, or of this installation.
std::filesystem::path python_folder() {
  const std::filesystem::path root = folder_of_programs().parent_path();
  for (const auto& folder : {root / "python", root.parent_path() / "python", root})
    if (std::filesystem::exists(folder / "__main__.py")) return folder;
  return root / "share/ringside/python";
}

}  // namespace

std::vector<std::string> start_of(const std::string& program) {
  if (program == "python") return {"python3", python_folder()};
  return {folder_of_programs() / program};
}

std::string shell_start_of(const std::string& program) {
  std::string command = "exec";
  for (const std::string& word : start_of(program)) command += " " + for_shell(word);
  return command;
}

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

}  // namespace ringside::cli

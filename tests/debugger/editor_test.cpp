// The files of the editor and of the dev container, against the sources that they name.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/read_file.hpp"
#include "cli/pictures/json_file.hpp"
#include "tests/text.hpp"

namespace ringside {
namespace {

namespace fs = std::filesystem;

const fs::path root = RINGSIDE_SOURCE_DIR;

// JSON with lines of comment, as VS Code reads it.
Json settings(const std::string& file) {
  static const std::regex comment("\\n *//[^\\n]*");
  return Json::parse(std::regex_replace("\n" + read_file((root / file).string()), comment, "\n"));
}

// All sources of the folders that a debugger steps through.
const std::string& sources() {
  static const std::string text = [] {
    std::string all;
    for (const char* folder : {"collectives", "autograd", "ddp", "zero", "examples"})
      for (const auto& entry : fs::recursive_directory_iterator(root / folder))
        if (entry.is_regular_file()) all += read_file(entry.path().string());
    return all;
  }();
  return text;
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> words;
  for (std::string word; stream >> word;) words.insert(word);
  return words;
}

}  // namespace

TEST_CASE(
    "every launch entry loads the printers, builds first, and stops in a function that exists") {
  std::set<std::string> tasks;
  const Json task_file = settings(".vscode/tasks.json"), launch = settings(".vscode/launch.json");
  for (const Json& task : task_file["tasks"]) {
    tasks.insert(task["label"]);
    CHECK(task.contains("problemMatcher"));
  }
  CHECK(launch["configurations"].size() >= 7);
  for (const Json& entry : launch["configurations"]) {
    const std::string name = entry["name"];
    CAPTURE(name);
    if (entry["request"] == "launch") CHECK(tasks.count(entry["preLaunchTask"]) == 1);
    std::string commands;
    for (const Json& command : entry["setupCommands"]) {
      const std::string text = command["text"];
      commands += text + "\n";
      const std::size_t scope = text.rfind("::");
      if (text.rfind("-break-insert", 0) != 0) continue;
      // "ringside::ddp::Bucketed::launch": a member function, or a free one.
      const std::string function = text.substr(scope + 2);
      CAPTURE(function);
      CHECK(std::regex_search(
          sources(),
          std::regex("[ :]" + std::regex_replace(function, std::regex("[()]"), "\\$&") + "\\(")));
    }
    CHECK(tests::contains(commands, "source ${workspaceFolder}/tools/gdb/load.py"));
  }
  CHECK(settings(".vscode/extensions.json")["recommendations"][0] == "ms-vscode.cpptools");
}

TEST_CASE("the problem matcher of the tests finds a failed check of doctest") {
  const Json tasks = settings(".vscode/tasks.json");
  std::smatch match;
  const std::string line = "12: ../../tests/a_test.cpp:29: ERROR: CHECK( a == b ) is NOT correct!";
  bool found = false;
  for (const Json& task : tasks["tasks"])
    for (const Json& matcher : task["problemMatcher"].is_array()
                                   ? task["problemMatcher"]
                                   : Json::array({task["problemMatcher"]})) {
      if (!matcher.is_object() || !matcher.contains("pattern")) continue;
      const std::string pattern = matcher["pattern"]["regexp"];
      REQUIRE(std::regex_match(line, match, std::regex(pattern)));
      CHECK(match[matcher["pattern"]["file"].get<int>()] == "../../tests/a_test.cpp");
      CHECK(match[matcher["pattern"]["line"].get<int>()] == "29");
      CHECK(match[matcher["pattern"]["message"].get<int>()] == "CHECK( a == b ) is NOT correct!");
      found = true;
    }
  CHECK(found);
}

TEST_CASE("the dev container has the packages of check, gdb and ptrace") {
  const std::string docker = read_file((root / ".devcontainer/Dockerfile").string());
  const auto installed = words_of(docker);
  const std::string check = read_file((root / "tools/lib.sh").string());
  int packages = 0;
  std::istringstream lines(check);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    std::string names;
    if (std::regex_search(line, match, std::regex("libraries\\+?=\"([^\"]*)\""))) names = match[1];
    if (std::regex_search(line, match, std::regex(">/dev/null \\|\\| echo ([a-z+-]+)$")))
      names = match[1];
    for (const std::string& name : words_of(names)) {
      CAPTURE(name);
      CHECK(installed.count(name) == 1);
      ++packages;
    }
  }
  CHECK(packages >= 11);
  CHECK(installed.count("gdb") == 1);
  const auto options = settings(".devcontainer/devcontainer.json")["runArgs"];
  CHECK(std::find(options.begin(), options.end(), "--cap-add=SYS_PTRACE") != options.end());
}

}  // namespace ringside

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "cli/program/reference.hpp"

namespace ringside::cli {

namespace {

// Text in a cell of a table.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|' || c == '<') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

std::string code_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return "`" + escaped + "`";
}

std::string anchor(std::string name) {
  std::ranges::replace(name, ' ', '-');
  return "#ringside-" + name;
}

void write_option_table(std::ostream& out, const CommandText& command) {
  std::string group = "Options";
  const std::vector<OptionText> options = options_without_help(command);
  if (options.empty()) return;
  out << "\n| option | what it does |\n|---|---|\n";
  for (const OptionText& option : options) {
    if (option.group != group) out << "| **" << option.group << "** | |\n";
    group = option.group;
    out << "| " << code_cell(option.names) << " | " << cell(option.text) << " |\n";
  }
}

void write_note_tables(std::ostream& out, const CommandText& command) {
  for (const Note& note : notes_of(command)) {
    if (!note.examples.empty()) {
      const bool explained = std::ranges::any_of(
          note.examples, [](const auto& example) { return !example.second.empty(); });
      out << (explained ? "\n| type | what you see |\n|---|---|\n" : "\n| type |\n|---|\n");
      for (const auto& [example, shows] : note.examples)
        out << "| " << code_cell(example) << (explained ? " | " + cell(shows) : "") << " |\n";
    } else if (note.verbatim) {
      out << "\n```text\n" << note.text << "\n```\n";
    } else {
      out << "\n" << note.text << "\n";
    }
  }
}

}  // namespace

std::string markdown_page(const CommandText& ringside) {
  std::ostringstream out;
  out << "# Commands\n\n"
         "`ringside help --as markdown` writes this page from the program's own help; a test "
         "compares "
         "the two.\n`ringside COMMAND --help` prints a part of it, and `man ringside` shows all of "
         "it "
         "once Ringside is installed.\n\n"
         "| command | what it does |\n|---|---|\n";
  const std::vector<NamedCommand> commands = all_commands(ringside);
  for (const auto& [name, command] : commands)
    out << fmt::format("| [`ringside {}`]({}) | {} |\n", name, anchor(name),
                       cell(command->description));
  for (const auto& [name, command] : commands) {
    out << "\n## ringside " << name << "\n\n" << command->description << ".\n";
    write_note_tables(out, *command);
    write_option_table(out, *command);
  }
  return out.str();
}

}  // namespace ringside::cli

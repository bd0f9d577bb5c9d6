#include "cli/program/reference.hpp"

#include <algorithm>
#include <sstream>

#include <CLI/CLI.hpp>

#include "cli/options/help_formatter.hpp"
#include "cli/program/other_programs.hpp"
#include "cli/program/program.hpp"

namespace ringside::cli {

namespace {

std::string without_indent(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin);
}

// An example is a line indented by two, which may go on after a backslash; what it shows stands
// below it, indented by six.
//
//     ringside train -n 4 --steps 500
//         four processes; the text is the C++ standard library
void add_example_line(Note& note, const std::string& line) {
  const bool goes_on = !note.examples.empty() && note.examples.back().first.ends_with('\\');
  if (goes_on) {
    std::string& command = note.examples.back().first;
    command = command.substr(0, command.size() - 1) + without_indent(line);
  } else if (line.starts_with("      ") && !note.examples.empty()) {
    std::string& shows = note.examples.back().second;
    shows += (shows.empty() ? "" : " ") + without_indent(line);
  } else {
    note.examples.emplace_back(without_indent(line), "");
  }
}

void add_commands_of(const CommandText& parent, const std::string& before,
                     std::vector<NamedCommand>& all) {
  for (const CommandText& command : parent.subcommands) {
    all.emplace_back(before + command.name, &command);
    add_commands_of(command, before + command.name + " ", all);
  }
}

std::string names_of(const CLI::Option& option) {
  const bool named = !option.get_snames().empty() || !option.get_lnames().empty();
  const std::string names =
      named ? option.get_name(false, true) : "[" + option.get_name(true) + "]";
  const bool has_type = option.get_type_size() != 0 && !option.get_type_name().empty();
  return has_type ? names + " " + option.get_type_name() : names;
}

OptionText describe(const CLI::Option& option) {
  OptionText text{names_of(option), text_of(option), option.get_group(), {}};
  for (const std::string& name : option.get_snames()) text.words.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.words.push_back("--" + name);
  return text;
}

}  // namespace

CommandText describe(const CLI::App& app, bool ask) {
  CommandText text{app.get_name(), app.get_description(), app.get_footer()};
  const auto is_shown = [](const CLI::Option* option) { return !option->get_group().empty(); };
  for (const CLI::Option* option : app.get_options(is_shown))
    text.options.push_back(describe(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const bool is_of_root = app.get_parent() == nullptr;
    const std::string program = is_of_root && ask ? program_of(command->get_name()) : "";
    text.subcommands.push_back(program.empty() ? describe(*command)
                                               : command_of(program, command->get_name()));
  }
  return text;
}

std::vector<NamedCommand> all_commands(const CommandText& ringside) {
  std::vector<NamedCommand> all;
  add_commands_of(ringside, "", all);
  return all;
}

std::vector<OptionText> options_without_help(const CommandText& command) {
  std::vector<OptionText> options = command.options;
  std::erase_if(options, [](const OptionText& option) {
    return std::ranges::find(option.words, "--help") != option.words.end();
  });
  return options;
}

std::vector<Note> notes_of(const CommandText& command) {
  std::vector<Note> notes;
  bool between = true, in_examples = false;
  std::istringstream lines(command.footer);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      between = true;
      continue;
    }
    if (between) in_examples = line == "Examples:" || line == "Example:";
    if (between) notes.emplace_back();
    Note& note = notes.back();
    if (in_examples) {
      if (!between) add_example_line(note, line);
    } else {
      note.text += (between ? "" : "\n") + line;
      note.verbatim |= line.starts_with("  ");
    }
    between = false;
  }
  return notes;
}

}  // namespace ringside::cli

#include "cli/commands/help/reference.hpp"

#include <sstream>

#include "cli/commands/options/help_formatter.hpp"

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

void add_commands_of(const CLI::App& app, const std::string& before,
                     std::vector<NamedCommand>& all) {
  for (const CLI::App* command : subcommands_of(app)) {
    all.emplace_back(before + command->get_name(), command);
    add_commands_of(*command, before + command->get_name() + " ", all);
  }
}

}  // namespace

std::vector<NamedCommand> all_commands(const CLI::App& ringside) {
  std::vector<NamedCommand> all;
  add_commands_of(ringside, "", all);
  return all;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  return command.get_options(
      [](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::string names_of(const CLI::Option& option) {
  const bool named = !option.get_snames().empty() || !option.get_lnames().empty();
  const std::string names =
      named ? option.get_name(false, true) : "[" + option.get_name(true) + "]";
  const bool has_type = option.get_type_size() != 0 && !option.get_type_name().empty();
  return has_type ? names + " " + option.get_type_name() : names;
}

std::vector<Note> notes_of(const CLI::App& command) {
  std::vector<Note> notes;
  bool between = true, in_examples = false;
  std::istringstream lines(command.get_footer());
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

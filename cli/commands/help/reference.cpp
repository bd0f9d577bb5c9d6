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

std::vector<Note> notes_of(const std::string& footer) {
  std::vector<Note> notes;
  bool between = true, in_examples = false;
  std::istringstream lines(footer);
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

OptionReference reference_of(const CLI::Option& option) {
  OptionReference reference;
  reference.takes_value = option.get_type_size() != 0;
  for (const std::string& name : option.get_snames()) reference.spellings.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) reference.spellings.push_back("--" + name);
  reference.names = reference.spellings.empty() ? "[" + option.get_name(true) + "]"
                                                : option.get_name(false, true);
  if (reference.takes_value && !option.get_type_name().empty())
    reference.names += " " + option.get_type_name();
  reference.text = text_of(option);
  reference.group = option.get_group();
  return reference;
}

void add_commands_of(const CLI::App& app, const std::string& name,
                     std::vector<CommandReference>& all) {
  CommandReference reference;
  reference.name = name;
  reference.description = app.get_description();
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) reference.options.push_back(reference_of(*option));
  reference.notes = notes_of(app.get_footer());
  const auto every = [](const CLI::App*) { return true; };
  for (const CLI::App* command : app.get_subcommands(every))
    reference.commands.emplace_back(command->get_name(), command->get_description());
  all.push_back(std::move(reference));
  for (const CLI::App* command : app.get_subcommands(every))
    add_commands_of(*command, name.empty() ? command->get_name() : name + " " + command->get_name(),
                    all);
}

}  // namespace

std::vector<OptionReference> CommandReference::options_but_help() const {
  std::vector<OptionReference> rest;
  for (const OptionReference& option : options)
    if (option.names != "-h,--help") rest.push_back(option);
  return rest;
}

std::vector<CommandReference> all_commands(const CLI::App& app) {
  std::vector<CommandReference> all;
  add_commands_of(app, "", all);
  return all;
}

}  // namespace ringside::cli

// All commands with their options and notes as data, taken from what CLI11 knows: the man page,
// docs/commands.md and the completions of shells come from it, so none of them can say anything
// else than `--help`. Programs tell each other their commands in it, as JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/options/cli11_names.hpp"

namespace ringside::cli {

struct OptionText {
  std::string names;               // "-n,--ranks N", "[collective]" for an argument
  std::string text;                // what it does, with its default
  std::string group;               // its heading in the help
  std::vector<std::string> words;  // "-n", "--ranks"; none for an argument
};

struct CommandText {
  std::string name, description;
  std::string footer = {};               // what stands below the options in its help
  std::vector<OptionText> options = {};  // that its help shows
  std::vector<CommandText> subcommands = {};
};

// What stands below the options in a command's help, paragraph by paragraph.
struct Note {
  std::string text;                                           // as in the help, with its lines
  bool verbatim = false;                                      // has indented lines: keep them
  std::vector<std::pair<std::string, std::string>> examples;  // command, what it shows; text is ""
};

// A command and its name: "bench train".
using NamedCommand = std::pair<std::string, const CommandText*>;

// The program's own commands, and those that it runs other programs for, which it asks for them
// (other_programs.hpp) unless `ask` is false.
CommandText describe(const CLI::App& ringside, bool ask = true);

// All commands in the order of the help, each before its subcommands.
std::vector<NamedCommand> all_commands(const CommandText& ringside);
std::vector<Note> notes_of(const CommandText& command);
std::vector<OptionText> options_without_help(const CommandText& command);

// The documents of `ringside help --as`.
std::string man_page(const CommandText& ringside);
std::string markdown_page(const CommandText& ringside);
std::string json_text(const CommandText& ringside);

// The commands of a program that has written its json_text(). Throws Error for another text.
std::vector<CommandText> commands_from_json(const std::string& text);

// The script of "bash", "zsh" or "fish" that completes a command line.
std::string completion(const std::string& shell);

// What may follow these words of a command line: the subcommands and options of the command to
// which they lead. A line for each: the word, a tab and what it does.
std::string next_words(const CommandText& ringside, const std::vector<std::string>& before);

}  // namespace ringside::cli

// All commands with their options and notes, as one structure: the man page, docs/commands.md and
// the completions of shells take them from it, so none of them can say anything else than
// `--help`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace ringside::cli {

// What stands below the options in a command's help, paragraph by paragraph.
struct Note {
  std::string text;                                           // as in the help, with its lines
  bool verbatim = false;                                      // has indented lines: keep them
  std::vector<std::pair<std::string, std::string>> examples;  // command, what it shows; text is ""
};

struct OptionReference {
  std::string names;  // "-n,--ranks N", or "[collective]" for an argument without a name
  std::string text;   // with its default in brackets
  std::string group;
  std::vector<std::string> spellings;  // "-n", "--ranks"
  bool takes_value = false;
};

struct CommandReference {
  std::string name;  // "bench train"; "" for ringside itself
  std::string description;
  std::vector<OptionReference> options;
  std::vector<Note> notes;
  std::vector<std::pair<std::string, std::string>> commands;  // its subcommands: name, description

  // Without --help, which every command has.
  std::vector<OptionReference> options_but_help() const;
};

// `ringside` first, then the commands in the order of the help, each before its subcommands.
std::vector<CommandReference> all_commands(const CLI::App& app);

std::string man_page(const std::vector<CommandReference>& commands);
std::string markdown_page(const std::vector<CommandReference>& commands);

// The script of "bash", "zsh" or "fish" that completes a command line.
std::string completion(const std::string& shell);

// What may follow these words of a command line: the subcommands and options of the command to
// which they lead. A line for each: the word, a tab and what it does.
std::string next_words(const std::vector<CommandReference>& commands,
                       const std::vector<std::string>& before);

}  // namespace ringside::cli

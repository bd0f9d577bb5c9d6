// All commands with their options and notes, as CLI11 knows them: the man page, docs/commands.md
// and the completions of shells take them from it, so none of them can say anything else than
// `--help`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/commands/options/cli11_names.hpp"

namespace ringside::cli {

// What stands below the options in a command's help, paragraph by paragraph.
struct Note {
  std::string text;                                           // as in the help, with its lines
  bool verbatim = false;                                      // has indented lines: keep them
  std::vector<std::pair<std::string, std::string>> examples;  // command, what it shows; text is ""
};

// A command and its name: "bench train".
using NamedCommand = std::pair<std::string, const CLI::App*>;

// All commands in the order of the help, each before its subcommands.
std::vector<NamedCommand> all_commands(const CLI::App& ringside);
std::vector<const CLI::App*> subcommands_of(const CLI::App& command);
std::vector<const CLI::Option*> options_of(const CLI::App& command);  // that its help shows
std::string names_of(const CLI::Option& option);  // "-n,--ranks N", "[collective]" for an argument
std::vector<Note> notes_of(const CLI::App& command);

std::string man_page(const CLI::App& ringside);
std::string markdown_page(const CLI::App& ringside);

// The script of "bash", "zsh" or "fish" that completes a command line.
std::string completion(const std::string& shell);

// What may follow these words of a command line: the subcommands and options of the command to
// which they lead. A line for each: the word, a tab and what it does.
std::string next_words(const CLI::App& ringside, const std::vector<std::string>& before);

}  // namespace ringside::cli

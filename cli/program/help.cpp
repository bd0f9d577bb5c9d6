// `ringside help`: the help of a command, or a document about all of them.

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/text/words.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/program/other_programs.hpp"
#include "cli/program/reference.hpp"

namespace ringside::cli {

namespace {

struct HelpOptions {
  CLI::App* ringside = nullptr;
  std::vector<std::string> command;
  std::string document;
};

const CLI::App& command_named(const CLI::App& ringside, const std::vector<std::string>& words) {
  const CLI::App* found = &ringside;
  for (const std::string& word : words) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : found->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
      if (command->get_name() == word) next = command;
    }
    refuse_if(next == nullptr, "there is no command '{}'{}", fmt::join(words, " "),
              did_you_mean(word, names));
    found = next;
  }
  return *found;
}

std::string document_of(const HelpOptions& options) {
  const std::string& document = options.document;
  if (document != "man" && document != "markdown" && document != "json" && document != "words")
    return completion(document);
  const bool within_a_command = document == "words" && !options.command.empty();
  const CommandText ringside = describe(*options.ringside, !within_a_command);
  if (document == "man") return man_page(ringside);
  if (document == "markdown") return markdown_page(ringside);
  if (document == "json") return json_text(ringside);
  return next_words(ringside, options.command);
}

void help(const HelpOptions& options) {
  const bool of_a_command = options.document.empty() || options.document == "words";
  if (of_a_command && !options.command.empty()) become_program_with(options.command.front());
  if (!options.document.empty()) {
    fmt::print("{}", document_of(options));
    return;
  }
  if (options.command.empty()) describe_other_commands(*options.ringside);
  const CLI::App& command = command_named(*options.ringside, options.command);
  std::string name = command.get_name();
  for (const CLI::App* parent = command.get_parent(); parent; parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  const bool has_short_help = command.get_help_all_ptr() != nullptr;
  // Not App::help(), which prints the help of the command that was given: this one.
  fmt::print("{}", command.get_formatter()->make_help(
                       &command, name,
                       has_short_help ? CLI::AppFormatMode::All : CLI::AppFormatMode::Normal));
}

}  // namespace

void add_help_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "help", "Print the help of a command with all its options, or a document about all",
      help);
  args.ringside = &app;
  option("command NAME", args.command, "The command, such as train or bench ddp [ringside itself]");
  option(
      "--as KIND", args.document,
      "A document about all commands: man (a manual page), markdown (docs/commands.md), or the "
      "completion of a shell: bash, zsh, fish. json: the commands as data. words: what may follow "
      "the words after --",
      one_of({"man", "markdown", "bash", "zsh", "fish", "json", "words"}));
}

}  // namespace ringside::cli

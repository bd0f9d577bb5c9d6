// What may come next on a command line (`ringside help --as words -- bench ddp`): one walk down the
// tree of commands serves the completions of all shells (completion/), which ask the program that
// is completed.

#include <algorithm>

#include "cli/program/reference.hpp"

namespace ringside::cli {

std::string next_words(const CommandText& ringside, const std::vector<std::string>& before) {
  const CommandText* here = &ringside;
  for (const std::string& word : before) {
    const auto found = std::ranges::find(here->subcommands, word, &CommandText::name);
    if (found != here->subcommands.end()) here = &*found;
  }
  std::string next;
  const auto add = [&](const std::string& word, std::string text) {
    std::ranges::replace(text, '\n', ' ');
    next += word + "\t" + text + "\n";
  };
  for (const CommandText& command : here->subcommands) add(command.name, command.description);
  for (const OptionText& option : here->options)
    for (const std::string& word : option.words) add(word, option.text);
  return next;
}

}  // namespace ringside::cli

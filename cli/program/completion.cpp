// The completions of shells. Their scripts ask the program what may come next
// (`ringside help --as words -- bench ddp`), so one walk down the tree of commands serves all of
// them, and they hold for the program that is completed.

#include <algorithm>

#include "base/error.hpp"
#include "cli/program/reference.hpp"

namespace ringside::cli {

namespace {

constexpr const char* bash = R"(# bash completion of ringside; made by `ringside help --as bash`.
_ringside() {
  local program=${COMP_WORDS[0]/#\~/$HOME} before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  local next=$("$program" help --as words -- "${before[@]}" 2>/dev/null | cut -f 1)
  COMPREPLY=($(compgen -W "$next" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _ringside ringside
)";

constexpr const char* zsh = R"(#compdef ringside
# zsh completion of ringside; made by `ringside help --as zsh`.
local -a next subcommands options
next=("${(@f)$(${~words[1]} help --as words -- "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
next=("${(@)next/$'\t'/:}")
options=(${(M)next:#-*}) subcommands=(${next:#-*})
if [[ $PREFIX == -* ]]; then
  _describe -o option options
elif (( $#subcommands )); then
  _describe command subcommands
else
  _files
fi
)";

constexpr const char* fish = R"(# fish completion of ringside; made by `ringside help --as fish`.
function __ringside_next
  set -l before (commandline -opc)
  $before[1] help --as words -- $before[2..-1] 2>/dev/null
end
complete -c ringside -n "__ringside_next | string match -qrv '^-'" -f
complete -c ringside -a '(__ringside_next)'
)";

}  // namespace

std::string completion(const std::string& shell) {
  if (shell == "bash") return bash;
  if (shell == "zsh") return zsh;
  require(shell == "fish", "there is no completion for {}", shell);
  return fish;
}

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

// A completion goes through the words before the cursor and follows them down the tree of commands.
// What may come next are the subcommands and options of the command that it reaches, or else a
// file.

#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "cli/commands/help/reference.hpp"

namespace ringside::cli {

namespace {

using Commands = std::vector<CommandReference>;

// "'train'|'bench train'": the paths that lead to a command.
std::string paths(const Commands& commands, const char* separator) {
  std::vector<std::string> quoted;
  for (const CommandReference& command : commands)
    if (!command.name.empty()) quoted.push_back("'" + command.name + "'");
  return fmt::format("{}", fmt::join(quoted, separator));
}

// In single quotes of the shell, and on one line.
std::string quoted(const std::string& text) {
  std::string safe = "'";
  for (const char c : text) {
    if (c == '\'')
      safe += "'\\''";
    else
      safe += c == '\n' ? ' ' : c;
  }
  return safe + "'";
}

std::string bash(const Commands& commands) {
  std::ostringstream out;
  out << "# bash completion of ringside; made by `ringside help --as bash`.\n"
         "_ringside() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} command= next= i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case \"${command:+$command }${COMP_WORDS[i]}\" in\n"
         "      "
      << paths(commands, " | ")
      << ") command=${command:+$command }${COMP_WORDS[i]} ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$command\" in\n";
  for (const CommandReference& command : commands) {
    std::vector<std::string> words;
    for (const auto& [name, text] : command.commands) words.push_back(name);
    for (const OptionReference& option : command.options)
      words.insert(words.end(), option.spellings.begin(), option.spellings.end());
    out << fmt::format("    '{}') next=\"{}\" ;;\n", command.name, fmt::join(words, " "));
  }
  out << "  esac\n"
         "  COMPREPLY=($(compgen -W \"$next\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _ringside ringside\n";
  return out.str();
}

std::string zsh(const Commands& commands) {
  std::ostringstream out;
  out << "#compdef ringside\n"
         "# zsh completion of ringside; made by `ringside help --as zsh`.\n"
         "local command= word\n"
         "local -a subcommands options\n"
         "for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
         "  case \"${command:+$command }$word\" in\n"
         "    "
      << paths(commands, "|")
      << ") command=\"${command:+$command }$word\" ;;\n"
         "  esac\n"
         "done\n"
         "case \"$command\" in\n";
  for (const CommandReference& command : commands) {
    out << "  '" << command.name << "')\n    subcommands=(";
    for (const auto& [name, text] : command.commands)
      out << "\n      " << quoted(name + ":" + text);
    out << ")\n    options=(";
    for (const OptionReference& option : command.options)
      for (const std::string& spelling : option.spellings)
        out << "\n      " << quoted(spelling + ":" + option.text);
    out << ") ;;\n";
  }
  out << "esac\n"
         "if [[ $PREFIX == -* ]]; then\n"
         "  _describe -o option options\n"
         "elif (( $#subcommands )); then\n"
         "  _describe command subcommands\n"
         "else\n"
         "  _files\n"
         "fi\n";
  return out.str();
}

std::string fish(const Commands& commands) {
  std::ostringstream out;
  out << "# fish completion of ringside; made by `ringside help --as fish`.\n"
         "function __ringside_at\n"
         "  set -l command\n"
         "  for word in (commandline -opc)[2..-1]\n"
         "    if contains -- (string join ' ' $command $word) "
      << paths(commands, " ")
      << "\n"
         "      set -a command $word\n"
         "    end\n"
         "  end\n"
         "  test \"$command\" = \"$argv\"\n"
         "end\n";
  for (const CommandReference& command : commands) {
    const std::string here =
        fmt::format("complete -c ringside -n '__ringside_at {}'", command.name);
    for (const auto& [name, text] : command.commands)
      out << here << " -f -a " << name << " -d " << quoted(text) << "\n";
    for (const OptionReference& option : command.options) {
      if (option.spellings.empty()) continue;
      out << here;
      for (const std::string& spelling : option.spellings)
        out << (spelling.starts_with("--") ? " -l " + spelling.substr(2)
                                           : " -s " + spelling.substr(1));
      out << (option.takes_value ? " -r" : "") << " -d " << quoted(option.text) << "\n";
    }
  }
  return out.str();
}

}  // namespace

std::string completion(const Commands& commands, const std::string& shell) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  require(shell == "fish", "there is no completion for {}", shell);
  return fish(commands);
}

}  // namespace ringside::cli

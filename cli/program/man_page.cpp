#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "cli/program/reference.hpp"

namespace ringside::cli {

namespace {

// Text of roff: a backslash and a hyphen mean themselves, and so does a dot that begins a line.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else if (c == '\'')
      escaped += "\\(aq";
    else if (c == '.' && (escaped.empty() || escaped.back() == '\n'))
      escaped += "\\&.";
    else
      escaped += c;
  }
  return escaped;
}

void write_roff_notes(std::ostream& out, const CommandText& command) {
  for (const Note& note : notes_of(command)) {
    for (const auto& [example, shows] : note.examples)
      out << ".PP\n.nf\n    " << roff(example) << "\n.fi\n"
          << (shows.empty() ? "" : ".RS 8\n" + roff(shows) + "\n.RE\n");
    if (note.verbatim) out << ".PP\n.nf\n" << roff(note.text) << "\n.fi\n";
    if (!note.verbatim && !note.text.empty()) out << ".PP\n" << roff(note.text) << "\n";
  }
}

}  // namespace

std::string man_page(const CommandText& ringside) {
  std::ostringstream out;
  out << ".TH RINGSIDE 1 \"\" \"ringside " RINGSIDE_VERSION "\" \"User commands\"\n"
      << ".nh\n.ad l\n.SH NAME\nringside \\- distributed training from scratch, to be read, "
         "stepped "
         "through and measured\n"
      << ".SH SYNOPSIS\n.B ringside\n.I COMMAND\n[options]\n.SH COMMANDS\n";
  for (const auto& [name, command] : all_commands(ringside)) {
    out << ".SS ringside " << roff(name) << "\n" << roff(command->description) << "\n";
    for (const OptionText& option : options_without_help(*command))
      out << ".TP\n.B " << roff(option.names) << "\n" << roff(option.text) << "\n";
    write_roff_notes(out, *command);
  }
  out << ".SH SEE ALSO\ndocs/ of the project: the README, and a book that explains what the "
         "program "
         "runs.\n";
  return out.str();
}

}  // namespace ringside::cli

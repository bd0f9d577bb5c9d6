// The layout of `ringside ... --help`: descriptions wrap at the width of the terminal, and defaults
// stand in square brackets at the end of a description.
//
// A command with many options has a short help, which shows the most important ones; --help-all
// shows all.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace ringside::cli {

// Names the options of the short help of `command`, in their order. They are declared already. Its
// footer is cut after the examples, which come first.
void set_short_help(CLI::App& command, std::vector<std::string> options);

// What an option does, and its default in brackets.
std::string text_of(const CLI::Option& option);

class HelpFormatter : public CLI::Formatter {
 public:
  // At most `width` columns; descriptions begin at column `left`.
  HelpFormatter(std::size_t width, std::size_t left);

  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;
  std::string make_help(const CLI::App* command, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string wrapped(const std::string& text) const;

  std::size_t width_, left_;
};

}  // namespace ringside::cli

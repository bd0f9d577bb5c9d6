// The layout of `ringside ... --help`: descriptions wrap at the width of the terminal, and defaults
// stand in square brackets at the end of a description.
#pragma once

#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace ringside::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  // At most `width` columns; descriptions begin at column `left`.
  HelpFormatter(std::size_t width, std::size_t left);

  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string wrapped(const std::string& text) const;

  std::size_t width_, left_;
};

// Breaks a paragraph into lines of at most `width` columns.
std::string wrap(const std::string& text, std::size_t width);

}  // namespace ringside::cli

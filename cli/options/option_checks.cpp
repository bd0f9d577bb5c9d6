#include "cli/options/option_checks.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/read_number.hpp"
#include "base/text/words.hpp"
#include "cli/options/options.hpp"

namespace ringside::cli {
namespace {

template <class Number>
bool is_a(const std::string& text) {
  Number number{};
  return read_number(text, number);
}

// Accepts a number that `fits`; `which` follows "a number" in the sentence.
template <class Fits>
Check number_check(const std::string& which, Fits fits) {
  return [which, fits](const std::string& text) -> std::string {
    double number = 0;
    if (!read_number(text, number)) return "a number is expected, not " + text;
    return fits(number) ? "" : fmt::format("a number {} is expected, not {}", which, text);
  };
}

}  // namespace

Check one_of(std::vector<std::string> names, std::map<std::string, std::string> also_called) {
  return [names = std::move(names),
          also_called = std::move(also_called)](const std::string& value) -> std::string {
    if (std::ranges::find(names, value) != names.end()) return "";
    const auto synonym = also_called.find(value);
    const std::string meant = synonym != also_called.end() ? synonym->second : value;
    return fmt::format("expected {}, got '{}'{}", fmt::join(names, ", "), value,
                       did_you_mean(meant, names));
  };
}

Check at_least_one(const std::string& thing) {
  return [thing](const std::string& text) -> std::string {
    int number = 0;
    if (!read_number(text, number)) return what_is_no_number({text});
    return number >= 1 ? "" : fmt::format("at least 1 {} is needed, not {}", thing, number);
  };
}

Check in_range(double least, double most) {
  return number_check(fmt::format("from {:.15g} to {:.15g}", least, most),
                      [=](double number) { return number >= least && number <= most; });
}

Check not_negative() {
  return number_check("of at least 0", [](double number) { return number >= 0; });
}

Check positive() {
  return number_check("above 0", [](double number) { return number > 0; });
}

Check parsed_by(std::function<void(const std::string& text)> parse) {
  return [parse = std::move(parse)](const std::string& text) -> std::string {
    try {
      parse(text);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
}

std::string what_is_no_number(const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    if (!is_a<double>(value)) return "a number is expected, not " + value;
    if (!is_a<std::int64_t>(value) && value.find_first_of(".eE") != std::string::npos)
      return "a whole number is expected, not " + value;
  }
  return fmt::format("{} is beyond the numbers that are possible here", fmt::join(values, ","));
}

void add_json_option(const Options& option, std::string& path) {
  option("--json FILE", path,
         "Write the figures to this file; - writes them to standard output and the table "
         "to standard error");
}

}  // namespace ringside::cli

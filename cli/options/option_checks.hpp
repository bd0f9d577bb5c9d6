// The checks of options: one of several names, a number in a range.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/options/cli11_names.hpp"

namespace ringside::cli {

// What is wrong with a value of an option; empty: nothing.
using Check = std::function<std::string(const std::string& text)>;

// Refuses any other value, with the name that was probably meant. `also_called` has other words for
// some of the names: {{"fsdp", "zero3"}}.
Check one_of(std::vector<std::string> names, std::map<std::string, std::string> also_called = {});

// Checks that an option is a number of at least 1: "at least 1 rank is needed, not 0".
Check at_least_one(const std::string& thing);

// Check numbers: "a number from 1 to 64 is expected, not 70".
Check in_range(double least, double most);
Check not_negative();
Check positive();

// Accepts a text for which `parse` does not throw Error; its message is what is wrong.
Check parsed_by(std::function<void(const std::string& text)> parse);

// What is wrong with a value that CLI11 cannot convert: "a whole number is expected, not 1.5".
std::string what_is_no_number(const std::vector<std::string>& values);

// Declares --json FILE for the figures of a command.
void add_json_option(const Options& option, std::string& path);

}  // namespace ringside::cli

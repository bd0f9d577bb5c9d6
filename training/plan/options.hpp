// The table of options: each option of a training run is one row of options_of(), in options.cpp.
// Loops over the rows make
//
//     the command line, its help and its checks   cli/options/training_options.hpp
//     the comparison between ranks                same_options.hpp
//     the metadata of a checkpoint                state/saved_run.hpp
//     what a resumed run may change               prepare.hpp, saved_run.hpp
//     the command that resumes a run              cli/commands/train/resume_command.hpp
//
// A new option is a field of Plan, one row here, and one use.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "training/plan/plan.hpp"

namespace ringside::training {

// Which values of its type an option takes.
struct Check {
  enum Kind { any, at_least_one, not_negative, positive, strategy, parsed } kind = any;
  const char* thing = "";  // "at least 1 step is needed"
};

// Whether an option must be equal on all ranks, or is a rank's own.
enum class Ranks { same, own };

// What a checkpoint has of an option: a key of its metadata, or
inline constexpr std::string_view not_kept = "";
inline constexpr std::string_view in_config = "config.json";  // the model's own file has it
inline constexpr std::string_view in_folder = "--resume";     // the folder's name stands for it

struct Option {
  std::string name;  // "--accumulate,--micro-batches K"; empty: not an option of the command line
  Ranks ranks;
  std::string_view kept;
  std::string help;
  Check check = {};
  std::string group = {};  // the heading in the help
  enum Kind { value, flag, list } kind = value;
  std::vector<std::string> names = {};  // the only values; empty: any

  // The text of the plan's field; empty: no value.
  std::function<std::string()> get = {};
  // Sets it, or adds to a list. False if it is not a number where there should be one. Throws
  // Error.
  std::function<bool(const std::string& text)> set = {};
  // What the ranks compare: of a path, whether there is one.
  std::function<std::string()> compared = {};

  std::string flag_name() const { return name.substr(0, name.find_first_of(", ")); }
  bool is_in_metadata() const { return kept != not_kept && kept != in_config && kept != in_folder; }
};

// The rows, for a plan that must outlive them.
std::vector<Option> options_of(Plan& plan);

const char* name_of(OptimizerKind kind);

// Parses "3-5" or "4". Throws Error.
StepRange step_range_from(const std::string& text);

}  // namespace ringside::training

#include "cli/options/training_options.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "cli/options/options.hpp"
#include "cli/options/strategy_name.hpp"
#include "training/strategies/parallel_strategies.hpp"

namespace ringside::cli {

using training::Option;

namespace {

CLI::Validator check_of(const Option& row) {
  using training::Check;
  const auto [kind, thing] = row.check;
  if (kind == Check::at_least_one) return at_least_one(thing);
  if (kind == Check::not_negative) return not_negative();
  if (kind == Check::positive) return positive();
  if (kind == Check::parsed) return parsed_by(row.set);
  if (kind == Check::strategy)
    return strategy_name(training::strategy_names(), {{"fsdp", "zero3"}, {"ddp", "bucketed"}});
  return row.names.empty() ? CLI::Validator() : one_of(row.names);
}

void declare(CLI::App& command, const Option& row) {
  const std::size_t space = row.name.find(' ');
  const std::string names = row.name.substr(0, space);
  if (row.kind == Option::flag) {
    command.add_flag_callback(
        names, [set = row.set] { set("given"); }, row.help);
    return;
  }
  const auto set_all = [set = row.set](const CLI::results_t& texts) {
    return std::ranges::all_of(texts, set);
  };
  CLI::Option* const declared = command.add_option(names, set_all, row.help);
  declared->type_name(row.name.substr(space + 1))->check(check_of(row));
  if (row.kind == Option::list) declared->expected(CLI::detail::expected_max_vector_size);
  if (!row.names.empty()) declared->default_str(row.get());  // for the help
}

template <class T>
CLI::Option* declare_as(const Options& option, const std::string& flag, T& value) {
  training::Plan plan;
  for (const Option& row : training::options_of(plan))
    if (row.flag_name() == flag) return option(row.name, value, row.help, check_of(row));
  fail("there is no option {} of a training run", flag);
}

}  // namespace

void add_training_options(const Options& option, training::Plan& plan) {
  for (const Option& row : training::options_of(plan)) {
    if (row.name.empty()) continue;
    option.group(row.group);
    declare(option.command(), row);
  }
}

CLI::Option* add_training_option(const Options& option, const char* flag, std::string& value) {
  return declare_as(option, flag, value);
}

CLI::Option* add_training_option(const Options& option, const char* flag,
                                 std::optional<double>& value) {
  return declare_as(option, flag, value);
}

}  // namespace ringside::cli

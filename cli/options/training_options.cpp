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

Check check_of(const Option& row) {
  using enum training::Check::Kind;
  const auto [kind, thing] = row.check;
  if (kind == at_least_one) return cli::at_least_one(thing);
  if (kind == not_negative) return cli::not_negative();
  if (kind == positive) return cli::positive();
  if (kind == parsed) return parsed_by(row.set);
  if (kind == strategy)
    return strategy_name(training::strategy_names(), {{"fsdp", "zero3"}, {"ddp", "bucketed"}});
  return row.names.empty() ? Check() : one_of(row.names);
}

void declare(const Options& option, const Option& row) {
  if (row.kind == Option::flag) {
    option.flag(
        row.name, [set = row.set] { set("given"); }, row.help);
    return;
  }
  const auto set_all = [set = row.set](const std::vector<std::string>& texts) {
    return std::ranges::all_of(texts, set);
  };
  const auto declared = option.declare(row.name, {set_all, row.get, row.kind == Option::list},
                                       row.help, check_of(row));
  if (!row.names.empty()) declared.show_default();
}

template <class T>
DeclaredOption declare_as(const Options& option, const std::string& flag, T& value) {
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
    declare(option, row);
  }
}

DeclaredOption add_training_option(const Options& option, const char* flag, std::string& value) {
  return declare_as(option, flag, value);
}

DeclaredOption add_training_option(const Options& option, const char* flag,
                                   std::optional<double>& value) {
  return declare_as(option, flag, value);
}

}  // namespace ringside::cli

// What the answers of planning have in common: a plan in words, numbers of tables, and the
// derivation with every formula. Lines fit 80 columns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "planning/account.hpp"
#include "planning/fit.hpp"

namespace ringside::cli {

// "pp=4,tp=8 (32 devices), 8 micro-batches of 1 sequence of 2048 tokens, schedule 1f1b". Without
// has_blocks only the mesh and ZeRO.
std::string plan_text(const planning::Plan& plan, bool has_blocks);

// The keys that the JSON of an account and of a simulation begin with.
Json plan_json(const planning::Model& model, const planning::Machine& machine,
               const planning::Plan& plan);

// Where the figures of a machine come from, and which of them are estimates.
std::string sources_text(const planning::Machine& machine);

// Every formula: with symbols, with numbers, its result and its source.
std::string derivation_text(const std::vector<planning::Section>& sections);

// The fastest `rows` plans that fit. With `tokens`, how many days each trains on so many.
std::string fit_text(const planning::Fit& fit, const planning::Machine& machine, std::size_t rows,
                     std::optional<double> tokens = {});

Json derivation_json(const std::vector<planning::Section>& sections);

// "1.2 ms", and "3,518": a number without digits after the point.
std::string seconds_text(double seconds);
std::string count_text(double value);

// "59.25", "3,518", "0.0123": a number of a table; 0 is "-".
std::string table_number(double value);
Show scaled(double scale);  // of a value times `scale`

}  // namespace ringside::cli

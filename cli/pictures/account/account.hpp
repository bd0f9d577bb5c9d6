// What `ringside account` prints: tables of a plan, the derivation with every formula, and the same
// figures as JSON. Lines fit 80 columns.
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "planning/account.hpp"
#include "planning/fit.hpp"

namespace ringside::cli {

// The tables of one plan.
std::string account_text(const planning::Account& account);

// "pp=4,tp=8 (32 devices), 8 micro-batches of 1 sequence of 2048 tokens, schedule 1f1b". Without
// has_blocks only the mesh and ZeRO.
std::string plan_text(const planning::Plan& plan, bool has_blocks);

// The keys that the JSON of an account and of a simulation begin with.
Json plan_json(const planning::Model& model, const planning::Machine& machine,
               const planning::Plan& plan);

// A line of the head of an answer: a name and a text, wrapped.
std::string fact(const char* name, const std::string& text);

// Where the figures of a machine come from, and which of them are estimates.
std::string sources_text(const planning::Machine& machine);

// Every formula: with symbols, with numbers, its result and its source.
std::string derivation_text(const std::vector<planning::Section>& sections);

// The fastest `rows` plans that fit.
std::string fit_text(const planning::Fit& fit, const planning::Machine& machine, std::size_t rows);

// Keys carry their unit: _bytes, _seconds, _flops.
Json account_json(const planning::Account& account);
Json derivation_json(const std::vector<planning::Section>& sections);

// "1.2 ms", and "3,518": a number without digits after the point.
std::string seconds_text(double seconds);
std::string count_text(double value);

// "59.25", "3,518", "0.0123": a number of a table; 0 is "-".
std::string table_number(double value);
Show scaled(double scale);  // of a value times `scale`

// The kinds of memory of all stages, in the order in which they appear.
std::vector<std::string> kinds_of(const planning::Account& account);

// The same tables for the text and for the page: the memory of a rank by kind, with a column for
// each stage; and the parts of a step.
Table memory_table(const planning::Account& account);
Table time_table(const planning::Account& account);

}  // namespace ringside::cli

#include "lab/pictures/comparison.hpp"

#include "lab/pictures/account.hpp"

namespace ringside::cli {

using planning::StepParts;

namespace {

// A row for each part of a step.
Table comparison(const StepParts& predicted, const StepParts& measured) {
  Table table{{only_in_json("part"), words(""),
               number("predicted", "predicted_seconds", scaled(1e3)),
               number("measured", "measured_seconds", scaled(1e3)), number("ratio", "", fixed(2))}};
  for (const auto& [part, name] : {std::pair("step", "step"),
                                   {"forward", "forward"},
                                   {"backward", "backward"},
                                   {"update", "clip and optimizer"},
                                   {"waits", "waits for communication"}}) {
    const double a = predicted.at(part), b = measured.at(part);
    table.rows.push_back({part, name, a, b, b > 0 ? Cell(a / b) : Cell()});
  }
  return table;
}

}  // namespace

std::string comparison_text(const StepParts& predicted, const StepParts& measured) {
  return "\nPredicted beside measured: a rank's mean, ms\n" +
         comparison(predicted, measured).text();
}

Json comparison_json(const StepParts& predicted, const StepParts& measured) {
  Json json;
  for (Json& row : comparison(predicted, measured).json()) {
    const std::string part = row.at("part");
    row.erase("part");
    json[part] = row;
  }
  return json;
}

}  // namespace ringside::cli

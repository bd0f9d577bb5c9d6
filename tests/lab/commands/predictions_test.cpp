// docs/predictions.md is what tools/predictions writes, and its figures stay as near to the
// published ones as they are.
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"

using namespace ringside::testing;

namespace {

// The columns of each row of the tables between two headings of the page.
std::vector<std::vector<std::string>> rows_of(const std::string& page, const std::string& title) {
  const std::size_t begin = page.find("\n## " + title + "\n");
  REQUIRE(begin != page.npos);
  std::istringstream section(page.substr(begin + 1, page.find("\n## ", begin + 1) - begin));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(section, line);) {
    if (!line.starts_with("| ") || line.starts_with("| |")) continue;
    std::istringstream cells(line.substr(2));
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '|');) rows.back().push_back(cell);
  }
  return rows;
}

void within(const std::string& page, const std::string& title, std::size_t count, double low,
            double high) {
  CAPTURE(title);
  const auto rows = rows_of(page, title);
  CHECK(rows.size() == count);
  for (const auto& row : rows) {
    REQUIRE(row.size() >= 4);
    CAPTURE(row[0]);
    const double ratio = std::stod(row[3]);
    CHECK(ratio >= low);
    CHECK(ratio <= high);
  }
}

}  // namespace

TEST_CASE("docs/predictions.md is what tools/predictions writes") {
  if (run_program({"sh", "-c", "command -v python3"}).exit_code != 0) {
    MESSAGE("SKIPPED: there is no python3");
    return;
  }
  const auto build = std::filesystem::path(ringside_binary).parent_path().parent_path();
  const auto written = run_program({"python3", RINGSIDE_ROOT "/tools/predictions", build.string()});
  CHECK(written.err == "");
  REQUIRE(written.exit_code == 0);
  CHECK_MESSAGE(written.out == read_file(RINGSIDE_ROOT "/docs/predictions.md"),
                "write it again: tools/predictions >docs/predictions.md");
}

TEST_CASE("published figures are met as docs/predictions.md says") {
  const std::string page = read_file(RINGSIDE_ROOT "/docs/predictions.md");
  within(page, "All-reduce by NCCL", 5, 0.9, 1.1);
  within(page, "Llama 3 405B", 3, 0.93, 1.3);
  for (std::size_t i = 0; i < 2; ++i) {  // sequences of 8,192 tokens: within 3 points
    const auto row = rows_of(page, "Llama 3 405B")[i];
    CHECK(std::abs(std::stod(row[2]) - std::stod(row[1])) < 3);
  }
  within(page, "Megatron: ten models on A100", 10, 0.95, 1.12);
  within(page, "Steps of GPT models on A100", 8, 0.94, 1.05);
  within(page, "FSDP from 125 million to 70 billion parameters", 30, 1, 1.5);
  within(page, "Activations of GPT models", 8, 0.99, 1.01);
  within(page, "ZeRO: the state of 7.5 billion parameters on 64 ranks", 4, 0.99, 1.01);
  within(page, "Parameters", 13, 0.97, 1.04);
  for (const char* model : {"1.3B", "3.6B", "8.9B"}) {
    CAPTURE(model);
    const std::string begin = fmt::format("Rank correlation of the rows of {}: ", model);
    REQUIRE(contains(page, begin));
    CHECK(std::stod(page.substr(page.find(begin) + begin.size())) >= 0.8);
  }
}

// Helpers for tests of `ringside train`: runs of a small model, and comparisons of their files.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/safetensors.hpp"

namespace ringside::testing {

using Command = std::vector<std::string>;

// Runs a model that takes milliseconds on a generated text.
class Training {
 public:
  explicit Training(Command options) : options_(std::move(options)) {
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += "line " + std::to_string(i * i) + " of a text that means little;\n";
    text_ = directory_.write("text.txt", text);
  }

  Command command(const Command& more = {}) const { return command_on(text_.string(), more); }

  // On other data than the text.
  Command command_on(const std::string& data, const Command& more = {}) const {
    Command command = {ringside_binary, "train", "--data",  data, "--d-model", "16",
                       "--layers",      "1",     "--heads", "2",  "--d-ff",    "20",
                       "--sequence",    "12",    "--batch", "12", "--threads", "1"};
    command.insert(command.end(), options_.begin(), options_.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  Outcome run(const Command& more = {}, const Variables& variables = {}) const {
    return run_program(command(more), variables, Seconds(60));
  }

  Outcome run_on(const std::string& data, const Command& more) const {
    return run_program(command_on(data, more), {}, Seconds(60));
  }

  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }

 private:
  TemporaryDirectory directory_;
  std::filesystem::path text_;
  Command options_;
};

// An array of the file, stored in fp32 or fp64.
inline std::vector<double> numbers(transformer::SafetensorsFile& file, const std::string& name) {
  const auto read = [&](auto zero) {
    std::vector<decltype(zero)> values(file.entry(name).bytes() / sizeof zero);
    file.read(name, std::as_writable_bytes(std::span(values)));
    return std::vector<double>(values.begin(), values.end());
  };
  return file.entry(name).type == transformer::StoredType::f64 ? read(double{}) : read(float{});
}

// The largest difference between two files of arrays with the same names and lengths. Ignores
// arrays of integers.
inline double largest_difference_of(const std::filesystem::path& one,
                                    const std::filesystem::path& other) {
  double largest = 0;
  transformer::SafetensorsFile a(one), b(other);
  REQUIRE(a.entries().size() == b.entries().size());
  for (const auto& [array, entry] : a.entries()) {
    if (entry.type == transformer::StoredType::i32) continue;
    const auto x = numbers(a, array), y = numbers(b, array);
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  return largest;
}

// Whether the models in two folders are equal to the bit.
inline bool same_model(const std::filesystem::path& one, const std::filesystem::path& other) {
  transformer::SafetensorsFile a(one / "model.safetensors"), b(other / "model.safetensors");
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [name, entry] : a.entries()) {
    std::vector<std::byte> x(entry.bytes()), y(b.entry(name).bytes());
    a.read(name, x);
    b.read(name, y);
    if (x != y) return false;
  }
  return true;
}

// The rows of --metrics without times.
inline std::vector<Json> rows_without_times(const std::filesystem::path& path) {
  std::vector<Json> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    rows.push_back(Json::parse(line));
    for (const char* time : {"step_seconds", "communication_seconds", "tokens_per_second"})
      rows.back().erase(time);
  }
  return rows;
}

}  // namespace ringside::testing

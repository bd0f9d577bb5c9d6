// `ringside eval`, compared with PyTorch.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/safetensors.hpp"

namespace ringside::cli {
namespace {

using testing::contains;
using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;
using transformer::SafetensorsFile;
namespace fs = std::filesystem;

const fs::path reference = RINGSIDE_REFERENCE_DIR;

template <class T>
std::vector<double> numbers(SafetensorsFile& file, const std::string& name) {
  std::vector<T> values(file.entry(name).bytes() / sizeof(T));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return {values.begin(), values.end()};
}

Outcome eval(const fs::path& model, const fs::path& tokens,
             const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {ringside_binary, "eval",     "--init",
                                      model.string(),  "--tokens", tokens.string()};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(command);
}

// The log softmax of the logits at one token.
double log_probability(std::span<const double> logits, std::size_t token) {
  double total = 0;
  for (const double logit : logits) total += std::exp(logit);
  return logits[token] - std::log(total);
}

template <class T>
void check_against_reference(const std::string& name, const std::string& dtype,
                             double loss_tolerance, double tolerance) {
  CAPTURE(name);
  CAPTURE(dtype);
  TemporaryDirectory directory;
  const fs::path json = directory.path() / "out.json", grads = directory.path() / "grads",
                 logits = directory.path() / "logits";
  const Outcome outcome = eval(reference / name, reference / "tokens.json",
                               {"--dtype", dtype, "--json", json.string(), "--grads",
                                grads.string(), "--logits", logits.string()});
  CHECK(outcome.err == "");
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "33 tokens predicted in 3 sequences"));

  SafetensorsFile expected(reference / name / "expected.safetensors"), gradients(grads),
      given(logits);
  const auto written = Json::parse(read_file(json));
  const auto tokens = Json::parse(read_file(reference / "tokens.json"));
  CHECK(std::abs(written["loss"].get<double>() - numbers<double>(expected, "loss")[0]) <
        loss_tolerance);
  CHECK(written["tokens"] == 33);
  CHECK(written["dtype"] == dtype);

  const auto all_logits = numbers<double>(expected, "logits");
  REQUIRE(written["log_probabilities"].size() == 3);
  for (std::size_t s = 0; s < 3; ++s) {
    REQUIRE(written["log_probabilities"][s].size() == 11);
    for (std::size_t t = 0; t < 11; ++t) {
      const double p = log_probability(std::span(all_logits).subspan((s * 12 + t) * 29, 29),
                                       tokens[s][t + 1].get<std::size_t>());
      CHECK(std::abs(written["log_probabilities"][s][t].get<double>() - p) < tolerance);
    }
    const auto own = numbers<T>(given, std::to_string(s));
    REQUIRE(own.size() == 12 * 29);
    for (std::size_t i = 0; i < own.size(); ++i)
      CHECK(std::abs(own[i] - all_logits[s * 12 * 29 + i]) < tolerance);
  }
  CHECK(gradients.entries().size() + 2 == expected.entries().size());
  for (const auto& [parameter, entry] : gradients.entries()) {
    CAPTURE(parameter);
    const auto a = numbers<T>(gradients, parameter),
               b = numbers<double>(expected, "gradient." + parameter);
    REQUIRE(a.size() == b.size());
    CHECK(entry.shape == expected.entry("gradient." + parameter).shape);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < tolerance);
  }
}

}  // namespace

TEST_CASE("eval gives PyTorch's loss, probabilities and gradients") {
  for (const char* name : {"untied_grouped", "tied"}) {
    check_against_reference<double>(name, "fp64", 1e-10, 1e-10);
    check_against_reference<float>(name, "fp32", 1e-6, 1e-5);
  }
}

TEST_CASE("eval and generate refuse a model that does not fit before they allocate memory") {
  TemporaryDirectory directory;
  fs::copy_file(reference / "tied" / "config.json", directory.path() / "config.json");
  auto config = Json::parse(read_file(directory.path() / "config.json"));
  config["vocab_size"] = 300, config["hidden_size"] = 80'000, config["intermediate_size"] = 300'000,
  config["num_hidden_layers"] = 200;
  config.erase("head_dim");
  directory.write("config.json", config.dump());
  const Outcome outcome =
      eval(directory.path(), reference / "tokens.json",
           {"--grads", (directory.path() / "g").string(), "--memory-limit", "64"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err.starts_with("ringside: this needs about "));
  CHECK(contains(outcome.err,
                 ", but 64 GB are available: choose a smaller --batch, or a smaller model; "
                 "--memory-limit 0 tries it anyway\n"));
  CHECK(contains(outcome.err, ", gradients "));
  const Outcome text = run_program(
      {ringside_binary, "generate", "--init", directory.path().string(), "--prompt", "a"});
  CHECK(text.exit_code == 1);
  CHECK(text.err.starts_with("ringside: this needs about "));
  CHECK(text.seconds < 5);
  CHECK(eval(reference / "tied", reference / "tokens.json", {"--memory-limit", "0.000001"})
            .exit_code == 1);
  CHECK(eval(reference / "tied", reference / "tokens.json", {"--memory-limit", "0"}).exit_code ==
        0);
}

TEST_CASE("eval reads a sharded checkpoint and gives bits per byte if a token's bytes are known") {
  TemporaryDirectory directory;
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(reference / "tied" / name, directory.path() / name);
  const Outcome unsharded = eval(directory.path(), reference / "tokens.json");
  CHECK(unsharded.exit_code == 0);
  CHECK_FALSE(contains(unsharded.out, "bits per byte"));  // 29 tokens are not bytes
  fs::rename(directory.path() / "model.safetensors",
             directory.path() / "model-00001-of-00001.safetensors");
  Json index;
  {
    const SafetensorsFile file(directory.path() / "model-00001-of-00001.safetensors");
    for (const auto& [name, entry] : file.entries())
      index["weight_map"][name] = "model-00001-of-00001.safetensors";
  }
  directory.write("model.safetensors.index.json", index.dump());
  CHECK(eval(directory.path(), reference / "tokens.json").out == unsharded.out);
  directory.write("tokenizer.json", "{}");
  const Outcome unreadable = eval(directory.path(), reference / "tokens.json");
  CHECK(unreadable.exit_code == 0);
  CHECK(contains(unreadable.out,
                 "no bits per byte: " + (directory.path() / "vocabulary.json").string() +
                     " is missing: `ringside tokenize --tokenizer "));
}

TEST_CASE("eval reports wrong tokens and missing files in one sentence") {
  TemporaryDirectory directory;
  const auto refusal = [&](const std::string& tokens, const std::string& name = "t.json") {
    const Outcome outcome = eval(reference / "tied", directory.write(name, tokens));
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(refusal("[[1, 29]]") ==
        "ringside: sequence 0 has the token 29 at position 1, but the model's vocabulary is 0 to "
        "28\n");
  CHECK(refusal("[[1,2,3,4,5,6,7,8,9,10,11,12,13]]") ==
        "ringside: sequence 0 has 13 tokens, but the model sees at most 12: cut it\n");
  CHECK(refusal("") == "ringside: cannot read tokens from " +
                           (directory.path() / "t.json").string() + ": it is empty\n");
  CHECK(contains(refusal("[[1]]", "t.bin"),
                 ": its name must end in .json, .u16 or .u32, which gives the format\n"));
  const Outcome missing = eval(directory.path() / "no", reference / "tokens.json");
  CHECK(missing.err == "ringside: cannot read " + (directory.path() / "no/config.json").string() +
                           ": is its folder a checkpoint?\n");
  const Outcome help = run_program({ringside_binary, "eval", "--help"});
  CHECK(contains(help.out, "NAME.u16"));
}

}  // namespace ringside::cli

// A damaged JSON file is refused in our own words, and by its name. Words of the JSON library would
// begin with "[json.exception".

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/cli/run_program.hpp"
#include "tests/sample.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside::testing;

namespace {

// A command that reads the JSON file `name` of a folder.
struct Reader {
  std::string name;
  std::function<std::vector<std::string>(const std::string& folder)> command;
};

const std::vector<Reader> readers{
    {"config.json",
     [](const std::string& folder) {
       return std::vector<std::string>{"generate", "--init", folder, "--tokens", "1"};
     }},
    {"model.safetensors.index.json",
     [](const std::string& folder) {
       std::filesystem::remove(folder + "/model.safetensors");
       return std::vector<std::string>{"generate", "--init", folder, "--tokens", "1"};
     }},
    {"text.corpus.json",
     [](const std::string& folder) {
       return std::vector<std::string>{"train", "--data", folder + "/text.u16", "--steps", "1"};
     }},
    {"tokens.json",
     [](const std::string& folder) {
       return std::vector<std::string>{"eval", "--init", folder, "--tokens",
                                       folder + "/tokens.json"};
     }},
    {"metrics.jsonl",
     [](const std::string& folder) {
       return std::vector<std::string>{"compare", folder + "/metrics.jsonl",
                                       folder + "/metrics.jsonl"};
     }},
    {"machine.json",
     [](const std::string& folder) {
       return std::vector<std::string>{"simulate", "--model", "llama3-8b", "--topology",
                                       folder + "/machine.json"};
     }},
    {"model.json",
     [](const std::string& folder) {
       return std::vector<std::string>{"account", "--model", folder + "/model.json"};
     }},
    {"trace.json",
     [](const std::string& folder) {
       return std::vector<std::string>{"simulate", "--model", "llama3-8b", "--measured",
                                       folder + "/trace.json"};
     }},
};

const std::vector<std::string> damaged{
    "",
    "{",
    "null",
    "[1]",
    "7",
    "\"text\"",
    "{\"a\":\"\xff\"}",
    "[{\"entries\":[]},",
    "{\"a\":1e999}",
    "{\"model_type\":[],\"traceEvents\":{},\"weight_map\":7,\"model\":\"\",\"step\":{}}",
    "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":7,\"pid\":1e300}],\"weight_map\":{\"a\":7}}",
    std::string(100000, '[')};

}  // namespace

TEST_CASE("a damaged JSON file is refused by its name, without the words of a library") {
  const TemporaryDirectory model;
  const std::string good = model.path() / "model";
  REQUIRE(run_program({ringside_binary, "train", "--threads", "1", "--steps", "1", "--batch", "2",
                       "--sequence", "16", "--layers", "1", "--save", good})
              .exit_code == 0);
  Sample sample;
  for (const Reader& reader : readers)
    for (const std::string& content : damaged) {
      if (!sample.takes()) continue;
      const TemporaryDirectory folder;
      std::filesystem::copy(good, folder.path());
      auto command = reader.command(folder.path());
      folder.write(reader.name, content);
      command.insert(command.begin(), ringside_binary);
      const auto outcome = run_program(command);
      CAPTURE(reader.name);
      CAPTURE(content.substr(0, 100));
      CAPTURE(outcome.err);
      CHECK(outcome.exit_code == 1);
      // Good JSON: one sequence, which is too short.
      const bool is_read = reader.name == "tokens.json" && content == "[1]";
      CHECK((is_read || contains(outcome.err, reader.name)));
      CHECK_FALSE(contains(outcome.err, "json.exception"));
      CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    }
}

// `ringside train` as a user runs it: what it prints, what it leaves on the disk, and that the number of ranks changes no gradient.

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint.hpp"
#include "transformer/safetensors.hpp"

namespace ringside::cli {
namespace {

using testing::contains;
using testing::Outcome;
using testing::ringside_binary;
using testing::run_program;
using transformer::SafetensorsFile;
using Command = std::vector<std::string>;

// A model that takes milliseconds, on a text of its own.
class Training {
 public:
  explicit Training(Command options) : options_(std::move(options)) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "line " + std::to_string(i * i) + " of a text that means little;\n";
    text_ = directory_.write("text.txt", text);
  }

  Outcome run(const Command& more = {}, const testing::Variables& variables = {}) const {
    Command command = {ringside_binary, "train", "--data",     text_.string(), "--d-model", "16", "--layers",  "1", "--heads", "2",
                       "--d-ff",        "20",    "--sequence", "12",           "--batch",   "12", "--threads", "1"};
    command.insert(command.end(), options_.begin(), options_.end());
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, variables, Seconds(60));
  }

  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }

 private:
  TemporaryDirectory directory_;
  std::filesystem::path text_;
  Command options_;
};

std::vector<double> numbers(SafetensorsFile& file, const std::string& name) {
  const auto read = [&](auto zero) {
    std::vector<decltype(zero)> values(file.entry(name).bytes() / sizeof zero);
    file.read(name, std::as_writable_bytes(std::span(values)));
    return std::vector<double>(values.begin(), values.end());
  };
  return file.entry(name).type == transformer::StoredType::f64 ? read(double{}) : read(float{});
}

// The largest difference between two runs' gradients and parameters, after every one of `steps` steps.
double largest_difference(const std::filesystem::path& one, const std::filesystem::path& other, int steps) {
  double largest = 0;
  for (int step = 1; step <= steps; ++step) {
    char name[32];
    std::snprintf(name, sizeof name, "step%04d.safetensors", step);
    SafetensorsFile a(one / name), b(other / name);
    REQUIRE(a.entries().size() == b.entries().size());
    REQUIRE(a.entries().size() == 2 * 12);  // a gradient and a parameter for each of the twelve
    for (const auto& [array, entry] : a.entries()) {
      const auto x = numbers(a, array), y = numbers(b, array);
      REQUIRE(x.size() == y.size());
      for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
    }
  }
  return largest;
}

void check_parallel_runs(const std::string& dtype, double tolerance) {
  // SGD and no clipping: AdamW, or a clipped norm, would hide gradients that are wrong by a factor.
  const Training training({"--steps", "10", "--optimizer", "sgd", "--lr", "0.5", "--clip", "0", "--dtype", dtype});
  REQUIRE(training.run({"--dump", training.path("alone").string()}).exit_code == 0);
  for (const std::string form : {"naive", "flat", "overlap", "bucketed", "zero1_broadcast", "zero1", "zero2", "zero3"}) {
    for (const std::string ranks : {"2", "3", "4"}) {
      CAPTURE(form);
      CAPTURE(ranks);
      const auto dump = training.path(form + ranks);
      const Outcome outcome = training.run({"-n", ranks, "--parallel", form, "--bucket-mb", "0.001", "--dump", dump.string()});
      REQUIRE(outcome.exit_code == 0);
      CHECK(outcome.survivors == "");
      CHECK(largest_difference(training.path("alone"), dump, 10) < tolerance);
    }
  }
  const auto dump = training.path("threads");
  REQUIRE(training.run({"-n", "4", "--backend", "threads", "--dump", dump.string()}).exit_code == 0);
  CHECK(largest_difference(training.path("alone"), dump, 10) < tolerance);
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("every gradient and parameter of ten steps is that of one rank in fp64") {
  check_parallel_runs("fp64", 1e-12);
}

TEST_CASE("every gradient and parameter of ten steps is that of one rank in fp32") {
  check_parallel_runs("fp32", 1e-5);
}

TEST_CASE("the same run gives the same dumps to the bit") {
  const Training training({"--steps", "3", "-n", "3"});
  for (const char* name : {"one", "two"}) REQUIRE(training.run({"--dump", training.path(name).string()}).exit_code == 0);
  for (const char* step : {"step0001.safetensors", "step0003.safetensors"}) {
    CHECK((contents(training.path("one") / step) == contents(training.path("two") / step)));
  }
}

TEST_CASE("rank 0 alone tells what is trained and how it went and what the model says") {
  const Training training({"--steps", "40", "--sample", "30", "--validate-every", "20"});
  const Outcome outcome = training.run({"-n", "2"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  CHECK(contains(outcome.out, "ranks    2 over shm, flat, 1 thread each\n"));
  CHECK(contains(outcome.out, "batch    12 sequences of 12 bytes, 6 on each rank; 40 steps\n"));
  CHECK(contains(outcome.out, "step  1/40  loss 5."));
  CHECK(contains(outcome.out, "step 40/40  loss "));
  CHECK(contains(outcome.out, "step 20/40  held-out text: "));
  CHECK(contains(outcome.out, "--- a sample of 30 bytes, temperature 0.8 ---\n"));
  CHECK_FALSE(contains(outcome.out, "\r"));  // no terminal, no line that is written over
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') < 40);
  CHECK_FALSE(contains(outcome.out, "[1]"));
}

TEST_CASE("metrics are a JSON object for each step") {
  const Training training({"--steps", "4", "--validate-every", "3", "--warmup", "2", "--lr", "0.01"});
  REQUIRE(training.run({"-n", "2", "--metrics", training.path("metrics").string()}).exit_code == 0);
  std::istringstream lines(contents(training.path("metrics")));
  std::vector<nlohmann::json> steps, examinations;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    (row.contains("loss") ? steps : examinations).push_back(row);
  }
  REQUIRE(steps.size() == 4);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& row = steps[i];
    CHECK(row["step"] == i + 1);
    CHECK(row["bits_per_byte"].get<double>() == doctest::Approx(row["loss"].get<double>() / std::log(2.0)));
    CHECK(row["tokens_per_second"].get<double>() == doctest::Approx(144 / row["step_seconds"].get<double>()));
    CHECK(row["communication_seconds"].get<double>() > 0);
    CHECK(row["communication_seconds"].get<double>() < row["step_seconds"].get<double>());
    CHECK(row["gradient_norm"].get<double>() > 0);
  }
  CHECK(steps[0]["lr"].get<double>() == doctest::Approx(0.005));
  CHECK(steps[1]["lr"].get<double>() == doctest::Approx(0.01));
  REQUIRE(examinations.size() == 2);  // after step 3, and at the end
  CHECK(examinations[0]["step"] == 3);
  CHECK(examinations[1]["validation_bits_per_byte"].get<double>() > 0);
}

TEST_CASE("what is saved can be trained on") {
  const Training training({"--steps", "60", "--lr", "0.01", "--tied-head", "--kv-heads", "1"});
  REQUIRE(training.run({"-n", "2", "--save", training.path("model").string()}).exit_code == 0);
  const transformer::Config config = transformer::load_config(training.path("model"));
  CHECK(config.tied_head);
  CHECK(config.kv_heads == 1);
  CHECK(config.d_ff == 20);

  const Outcome again = run_program({ringside_binary, "train", "--data", training.path("text.txt").string(), "--init",
                                     training.path("model").string(), "--steps", "1", "--lr", "0", "--threads", "1"});
  REQUIRE(again.exit_code == 0);
  const std::size_t at = again.out.find("step 1/1  loss ");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(again.out.substr(at + 15)) < 4);  // an untrained model's is 5.5
}

TEST_CASE("what is wrong is said once and before there are ranks") {
  const Training training({"-n", "4"});
  const auto refusal = [&](const Command& more) {
    const Outcome outcome = training.run(more);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out == "");
    CHECK(outcome.survivors == "");
    return outcome.err;
  };
  CHECK(refusal({"--batch", "10"}) ==
        "ringside: a batch of 10 sequences does not divide by 4 ranks: choose a multiple of 4, so that every rank reads equally "
        "much\n");
  CHECK(refusal({"--data", training.path("nowhere").string()}) ==
        "ringside: there is no file or directory " + training.path("nowhere").string() + "\n");
  std::ofstream(training.path("empty")).close();
  CHECK(refusal({"--data", training.path("empty").string()}) ==
        "ringside: " + training.path("empty").string() + " is empty: there is nothing to learn from it\n");
  CHECK(contains(refusal({"--sequence", "100000"}),
                 "ringside: a sequence of 100000 bytes and the one that follows do not fit into "));
  CHECK(refusal({"--heads", "3"}) ==
        "ringside: d_model 16 does not divide into 3 heads: choose a width that is a multiple of the number of heads\n");
  CHECK(refusal({"--parallel", "single"}) ==
        "ringside: --parallel single trains on one rank, not on 4: choose one of the others\nTry: ringside train --help\n");
  CHECK(refusal({"--metrics", training.path("no/file").string()}) ==
        "ringside: cannot write metrics to " + training.path("no/file").string() + ": No such file or directory\n");
  CHECK(refusal({"--init", training.path("no").string()}) ==
        "ringside: --init brings the model's sizes with it: leave out --model and the sizes\nTry: ringside train --help\n");
  CHECK(refusal({"--sample", "-1"}) == "ringside: --sample: a number from 0 on is expected, not -1\nTry: ringside train --help\n");
}

namespace {

// All arrays of one folder's model are, bit for bit, those of the other's.
bool same_model(const std::filesystem::path& one, const std::filesystem::path& other) {
  SafetensorsFile a(one / "model.safetensors"), b(other / "model.safetensors");
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [name, entry] : a.entries()) {
    std::vector<std::byte> x(entry.bytes()), y(b.entry(name).bytes());
    a.read(name, x);
    b.read(name, y);
    if (x != y) return false;
  }
  return true;
}

// The rows of --metrics without the times.
std::vector<nlohmann::json> rows_without_times(const std::filesystem::path& path) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    rows.push_back(nlohmann::json::parse(line));
    for (const char* time : {"step_seconds", "communication_seconds", "tokens_per_second"}) rows.back().erase(time);
  }
  return rows;
}

void check_resume(const Command& options) {
  const Training training({"--warmup", "4", "--lr", "0.01", "--validate-every", "4"});
  const auto run = [&](const char* folder, Command more) {
    more.insert(more.end(), options.begin(), options.end());
    more.insert(more.end(), {"--save", training.path(folder).string(), "--metrics", training.path(folder).string() + ".metrics"});
    const Outcome outcome = training.run(more);
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
  };
  run("whole", {"--steps", "20"});
  run("halves", {"--steps", "20", "--stop-at", "10"});
  CHECK_FALSE(same_model(training.path("whole"), training.path("halves")));

  // Nothing but the text and who computes it is said again.
  Command second = {ringside_binary, "train", "--data", training.path("text.txt").string(), "--threads", "1", "--validate-every", "4",
                    "--resume", training.path("halves").string(), "--metrics", training.path("halves.metrics").string()};
  second.insert(second.end(), options.begin(), options.end());
  const Outcome outcome = run_program(second, {}, Seconds(60));
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "resumed  after step 10\n"));
  CHECK_FALSE(contains(outcome.out, "changed"));
  CHECK(contains(outcome.out, "\n10 steps in "));
  CHECK(same_model(training.path("whole"), training.path("halves")));

  auto rows = rows_without_times(training.path("halves.metrics"));
  std::erase_if(rows, [](const nlohmann::json& row) { return row["step"] == 10 && row.contains("validation_bits_per_byte"); });
  CHECK(rows == rows_without_times(training.path("whole.metrics")));  // also the losses
}

}  // namespace

TEST_CASE("a run that is gone on with in a new process gives the same bits on one rank") {
  for (const char* dtype : {"fp32", "fp64", "bf16"}) check_resume({"--dtype", dtype});
  check_resume({"--optimizer", "sgd"});
}

TEST_CASE("a run that is gone on with in a new process gives the same bits on three ranks") {
  check_resume({"-n", "3", "--dtype", "fp32"});
  check_resume({"-n", "3", "--dtype", "fp64", "--parallel", "bucketed"});
}

namespace {

// A tokenizer learnt from the training's text, in a folder beside it.
std::string learnt_tokenizer(const Training& training, int vocabulary, const char* folder = "tokenizer") {
  const std::string path = training.path(folder).string();
  REQUIRE(run_program({ringside_binary, "tokenize", "--train", std::to_string(vocabulary), "--data", training.path("text.txt").string(), "--save",
                       path})
              .exit_code == 0);
  return path;
}

}  // namespace

TEST_CASE("a run in a tokenizer's tokens is the same on one rank and two and three") {
  // The gradients' sums are rounded in another order; so fp64, and nearly equal.
  const Training training({"--steps", "6", "--dtype", "fp64", "--warmup", "2", "--sample", "20"});
  const std::string tokenizer = learnt_tokenizer(training, 300);
  std::vector<nlohmann::json> first;
  for (const std::string ranks : {"1", "2", "3"}) {
    const std::string metrics = training.path("metrics" + ranks).string(), folder = training.path("model" + ranks).string();
    const Outcome outcome = training.run({"-n", ranks, "--tokenizer", tokenizer, "--metrics", metrics, "--save", folder});
    CHECK(outcome.err == "");
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "vocabulary 300\n"));
    CHECK(contains(outcome.out, "tokens   " + tokenizer + "/tokenizer.json: 300 of them; the text is "));
    CHECK(contains(outcome.out, "batch    12 sequences of 12 tokens, "));
    CHECK(contains(outcome.out, "--- a sample of 20 tokens, temperature 0.8 ---\n"));
    CHECK(contains(outcome.out, "saved    " + folder + " (config.json and model.safetensors, tokenizer.json, as "));
    CHECK(contents(folder + "/tokenizer.json") == contents(tokenizer + "/tokenizer.json"));
    const auto rows = rows_without_times(metrics);
    if (first.empty()) first = rows;
    REQUIRE(rows.size() == 7);  // and the examination at the end
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [key, value] : rows[i].items()) {
        CHECK(value.get<double>() == doctest::Approx(first[i][key].get<double>()).epsilon(1e-9));
      }
    }
  }
  // A token of this text is more than two bytes: what it costs in nats is much, what a byte costs in bits less than log2(300) / 2.
  CHECK(first[0]["loss"].get<double>() == doctest::Approx(std::log(300)).epsilon(0.05));
  CHECK(first[0]["bits_per_byte"].get<double>() < std::log2(300) / 2);
  CHECK(first[0]["bits_per_byte"].get<double>() > 1);
  CHECK(first[6]["validation_bits_per_byte"].get<double>() < std::log2(300) / 2);
}

TEST_CASE("a run in a tokenizer's tokens is gone on with to the bit and generate and eval speak them") {
  const Training training({"--warmup", "4", "--lr", "0.01", "-n", "2"});
  const std::string tokenizer = learnt_tokenizer(training, 300), whole = training.path("whole").string(), halves = training.path("halves").string();
  REQUIRE(training.run({"--steps", "20", "--tokenizer", tokenizer, "--save", whole}).exit_code == 0);
  REQUIRE(training.run({"--steps", "20", "--tokenizer", tokenizer, "--save", halves, "--stop-at", "10"}).exit_code == 0);
  const auto resume = [&](const Command& more) {
    Command command = {ringside_binary, "train", "--data", training.path("text.txt").string(), "--threads", "1", "-n", "2", "--resume", halves};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, {}, Seconds(30));
  };
  const std::string other = learnt_tokenizer(training, 290, "other");
  CHECK(resume({"--tokenizer", other}).err ==
        "ringside: the tokenizer is not the one that the run in " + halves +
            " was trained with: give it the same with --tokenizer, or none where its own tokenizer.json is still there\n");
  const Outcome outcome = resume({});  // the folder brings its tokenizer
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(same_model(whole, halves));

  const Outcome text = run_program({ringside_binary, "generate", "--init", halves, "--prompt", "line 4", "--tokens", "9"});
  CHECK(text.err == "");
  CHECK(text.out.starts_with("line 4"));

  const std::string ids = training.path("ids.u16").string(), figures = training.path("eval.json").string();
  REQUIRE(run_program({ringside_binary, "tokenize", "--tokenizer", tokenizer, "--file", training.path("text.txt").string(), "--out", ids}).exit_code == 0);
  const Outcome evaluated = run_program({ringside_binary, "eval", "--init", halves, "--tokens", ids, "--json", figures});
  CHECK(evaluated.err == "");
  CHECK(contains(evaluated.out, " bits per byte: "));
  const auto said = nlohmann::json::parse(contents(figures));
  const auto ratio = said["loss"].get<double>() / std::log(2.0) / said["bits_per_byte"].get<double>();  // bytes of a token
  CHECK(ratio > 2);
  CHECK(ratio < 12);

  std::filesystem::remove(training.path("halves") / "tokenizer.json");
  CHECK(resume({"--steps", "22"}).err == "ringside: the run in " + halves +
                                             " was trained with a tokenizer, and its tokenizer.json is gone: give it the same with --tokenizer\n");
  CHECK(resume({"--steps", "22", "--tokenizer", tokenizer}).exit_code == 0);
}

TEST_CASE("a tokenizer that does not fit is told before there are ranks") {
  const Training training({"--steps", "2", "-n", "3"});
  const std::string tokenizer = learnt_tokenizer(training, 300), file = tokenizer + "/tokenizer.json";
  const auto refusal = [&](const Command& more) {
    const Outcome outcome = training.run(more);
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    return outcome.err;
  };
  CHECK(refusal({"--tokenizer", tokenizer, "--vocabulary", "299"}) ==
        "ringside: the tokenizer " + file +
            " has 300 tokens, but the model's vocabulary is 299: take another tokenizer, or a model with --vocabulary 300\n");
  CHECK(refusal({"--tokenizer", "/nowhere.json"}) == "ringside: cannot read the tokenizer /nowhere.json: No such file or directory\n");
  CHECK(refusal({"--vocabulary", "255"}) == "ringside: a token here is a byte, so the vocabulary must be at least 256, but it is 255\n");
  CHECK(contains(refusal({"--save", tokenizer}), "ringside: " + file + " is there, but the tokens of this run are bytes: "));
  const std::string other = learnt_tokenizer(training, 290, "other");
  CHECK(contains(refusal({"--save", tokenizer, "--tokenizer", other}),
                 "ringside: " + file + " is another tokenizer than this run's (" + other + "/tokenizer.json): "));
  CHECK(contains(refusal({"--tokenizer", tokenizer, "--sequence", "7000"}),  // of 20000 bytes
                 "ringside: a sequence of 7000 tokens and the one that follows do not fit into "));
  CHECK(training.run({"--tokenizer", tokenizer, "--vocabulary", "310"}).exit_code == 0);
}

TEST_CASE("a run that was killed goes on from its last checkpoint on any number of ranks") {
  const Training training({"--steps", "400", "--dtype", "fp64", "--save-every", "5"});
  const std::string killed = training.path("killed").string();
  {
    testing::Program program({ringside_binary, "train",  "--data", training.path("text.txt").string(), "--d-model", "16", "--layers", "1", "--heads",
                              "2", "--d-ff", "20", "--sequence", "12", "--batch", "12", "--threads", "1", "--steps", "400", "--dtype", "fp64",
                              "--save-every", "5", "-n", "2", "--save", killed});
    program.wait_for("step  40/400", Seconds(30));
    for (const pid_t process : program.processes()) ::kill(process, SIGKILL);
    program.wait();
  }
  for (const char* ranks : {"1", "3", "4"}) {
    CAPTURE(ranks);
    const std::string copy = training.path(std::string("copy") + ranks).string();
    std::filesystem::copy(killed, copy, std::filesystem::copy_options::recursive);
    const Outcome outcome = run_program({ringside_binary, "train", "--data", training.path("text.txt").string(), "--threads", "1", "--resume",
                                         copy, "-n", ranks, "--stop-at", "399"},
                                        {}, Seconds(60));
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "resumed  after step "));
    CHECK(std::filesystem::exists(training.path(std::string("copy") + ranks) / "training-399.safetensors"));
  }
}

TEST_CASE("what is changed when a run is gone on with is told or refused") {
  const Training training({"--steps", "4", "--stop-at", "2"});
  const std::string folder = training.path("model").string();
  REQUIRE(training.run({"--save", folder}).exit_code == 0);
  const auto resume = [&](const Command& more) {
    Command command = {ringside_binary, "train", "--data", training.path("text.txt").string(), "--threads", "1", "--resume", folder};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, {}, Seconds(30));
  };
  CHECK(resume({"--model", "tiny"}).err ==
        "ringside: --resume brings the model's sizes with it: leave out --model and the sizes\nTry: ringside train --help\n");
  CHECK(resume({"--dtype", "fp64"}).err ==
        "ringside: the run in " + folder + " is in fp32: it cannot go on in fp64\nTry: ringside train --help\n");
  CHECK(resume({"--optimizer", "sgd"}).err == "ringside: the run in " + folder +
                                                  " has another optimizer than sgd: it cannot go on with that one's state\nTry: ringside "
                                                  "train --help\n");
  CHECK(resume({"--init", folder}).err ==
        "ringside: --resume goes on with a run and --init starts one: choose one of them\nTry: ringside train --help\n");
  CHECK(resume({"--steps", "2"}).err == "ringside: the run in " + folder + " has taken its 2 steps: ask for more with --steps\n");
  CHECK(resume({"--stop-at", "2"}).err == "ringside: the run cannot stop after step 2: 2 are taken already\n");
  std::ofstream(training.path("other.txt")) << std::string(5000, 'x');
  CHECK(resume({"--data", training.path("other.txt").string(), "-n", "2"}).err ==
        "ringside: the text is not the one that the run in " + folder +
            " was trained on: give it the same --data, or start from its parameters with --init\n");
  CHECK(contains(training.run({"--save-every", "2"}).err, "ringside: --save-every asks for a folder to save in: name one with --save"));

  const Outcome changed = resume({"--seed", "7", "--batch", "6", "--steps", "8", "--save", training.path("next").string()});
  CHECK(changed.exit_code == 0);
  CHECK(contains(changed.out, "changed  steps was 4 and is 8\nchanged  batch was 12 and is 6\nchanged  seed was 0 and is 7\n"));
}

TEST_CASE("the same run on two ranks with two threads each gives the same bits in every form") {
  for (const std::string form : {"naive", "flat", "overlap", "bucketed"}) {
    CAPTURE(form);
    // Wide enough that matrices, rows and heads are shared out among the threads.
    const Training training({"--steps", "2", "-n", "2", "--parallel", form, "--threads", "2", "--d-model", "128", "--heads", "4", "--d-ff",
                             "256", "--sequence", "64", "--batch", "8", "--bucket-mb", "0.2"});
    std::vector<std::string> bits[2];
    for (int run = 0; run < 2; ++run) {
      const auto dump = training.path(fmt::format("{}{}", form, run));
      REQUIRE(training.run({"--dump", dump.string()}, {{"OMP_WAIT_POLICY", "passive"}}).exit_code == 0);
      for (int step = 1; step <= 2; ++step) bits[run].push_back(contents(dump / fmt::format("step{:04}.safetensors", step)));
    }
    CHECK((bits[0] == bits[1]));
  }
}

TEST_CASE("a checkpoint goes on with a text") {
  const Training training({"--steps", "40", "--lr", "0.01"});
  const std::string model = training.path("model").string();
  REQUIRE(training.run({"--save", model}).exit_code == 0);
  const auto generate = [&](const Command& more) {
    Command command = {ringside_binary, "generate", "--init", model};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command);
  };
  const Outcome text = generate({"--prompt", "line 4", "--tokens", "40", "--top-k", "5", "--seed", "3"});
  CHECK(text.err == "");
  CHECK(text.exit_code == 0);
  CHECK(text.out.starts_with("line 4"));
  CHECK(text.out.size() >= 47);
  std::ofstream(training.path("prompt")) << "line 4";
  const std::string file = training.path("prompt").string();
  CHECK(generate({"--prompt-file", file, "--tokens", "40", "--top-k", "5", "--seed", "3"}).out == text.out);
  CHECK(generate({"--prompt", "line 4", "--tokens", "40", "--top-k", "5", "--seed", "4"}).out != text.out);
  const std::string likeliest = generate({"--prompt", "line", "--temperature", "0"}).out;
  CHECK(generate({"--prompt", "line", "--top-k", "1", "--seed", "9"}).out == likeliest);
  CHECK(generate({"--prompt", "x", "--tokens", "0"}).out == "x\n");
  CHECK(generate({"--prompt", ""}).err == "ringside: a text needs a beginning of at least one byte\n");
  CHECK(generate({"--prompt-file", model + "/no"}).err == "ringside: cannot read the beginning of the text from " + model + "/no\n");
  CHECK(generate({"--prompt", "a", "--prompt-file", file}).exit_code == 2);
  CHECK(generate({"--top-k", "-1"}).exit_code == 2);
}

TEST_CASE("bf16 learns as fp32 does in every form and is saved as such") {
  const auto losses = [](const Command& options) {
    const Training training({"--steps", "60", "--lr", "0.01", "--layers", "2"});
    Command all = options;
    all.insert(all.end(), {"--metrics", training.path("m").string(), "--save", training.path("model").string()});
    REQUIRE(training.run(all).exit_code == 0);
    SafetensorsFile model(training.path("model") / "model.safetensors");
    const bool stored_so = model.entry("model.norm.weight").type == transformer::StoredType::bf16;
    CHECK(stored_so == (options[1] == "bf16"));
    if (stored_so) CHECK(contains(contents(training.path("model") / "config.json"), "\"bfloat16\""));
    double last = 0;
    for (const auto& row : rows_without_times(training.path("m"))) {
      if (row.contains("loss")) last = row["loss"];
    }
    return last;
  };
  const double fp32 = losses({"--dtype", "fp32"});
  CHECK(fp32 < 3);
  CHECK(losses({"--dtype", "bf16"}) == doctest::Approx(fp32).epsilon(0.05));
  for (const char* form : {"naive", "flat", "overlap", "bucketed"})
    CHECK(losses({"--dtype", "bf16", "-n", "2", "--parallel", form}) == doctest::Approx(fp32).epsilon(0.05));
}

TEST_CASE("a model that does not fit is told before anything is allocated") {
  const Training training({});
  const Outcome outcome = training.run({"-n", "2", "--d-model", "1600", "--layers", "48", "--heads", "25", "--d-ff", "6400", "--memory-limit", "20"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out == "");
  CHECK(outcome.err ==
        "ringside: this takes about 80 GB of memory (2 ranks of 40 GB: parameters 7.87 GB, gradients 16 GB, optimizer 16 GB, activations "
        "0.45 GB), but there are 20 GB: choose a smaller model or batch, fewer ranks on this machine, or --accumulate and "
        "--checkpoint-activations for fewer activations; --memory-limit 0 tries it all the same\n");
  CHECK(outcome.seconds < 5);
  CHECK(contains(training.run({"--layers", "1000000000", "--d-model", "1000000000"}).err, "ringside: this takes about "));
  CHECK(training.run({"--steps", "1", "--memory-limit", "0.000001"}).exit_code == 1);
  CHECK(training.run({"--steps", "1", "--memory-limit", "0"}).exit_code == 0);
}

TEST_CASE("a run whose output nobody reads ends without a word on every rank") {
  const Training training({"--steps", "100000"});
  const std::string text = training.path("text.txt").string();
  for (const std::string how : {"-n 1", "-n 3", "-n 2 --backend tcp", "-n 2 --backend threads"}) {
    for (const std::string before : {"", "trap '' PIPE; "}) {  // also where whoever starts us has the signal ignored
      CAPTURE(how);
      CAPTURE(before);
      const std::string script = before + "\"$0\" train --data '" + text +
                                 "' --d-model 16 --layers 1 --heads 2 --d-ff 20 --sequence 12 --batch 12 --threads 1 --steps 100000 --eval-every 1 --eval-batches 1 " +
                                 how + " | head -n 3; echo \"${PIPESTATUS[0]}\"";
      const Outcome outcome = run_program({"bash", "-c", script, ringside_binary});
      CHECK(outcome.err == "");
      CHECK(contains(outcome.out, "\n141\n"));
      CHECK(outcome.survivors == "");
      CHECK(outcome.seconds < 10);
    }
  }
}

TEST_CASE("a run that diverges says so on every rank") {
  const Training training({"--steps", "20", "--optimizer", "sgd", "--lr", "1e9", "--clip", "0"});
  const Outcome outcome = training.run({"-n", "2"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.err, ": training has diverged; try a lower learning rate"));
  CHECK(outcome.survivors == "");
}

TEST_CASE("ranks that are threads are one process and no outer launcher's") {
  const Training training({"--steps", "2", "--backend", "threads"});
  const Outcome outcome = training.run({"-n", "3"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "ranks    3 over threads, flat, 1 thread each\n"));
  const Outcome inside = training.run({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  CHECK(inside.exit_code == 2);
  CHECK(contains(inside.err, "--backend threads keeps all ranks in one process"));
}

namespace {

// The largest difference between two files of arrays with the same names.
double largest_difference_of(const std::filesystem::path& one, const std::filesystem::path& other) {
  double largest = 0;
  SafetensorsFile a(one), b(other);
  REQUIRE(a.entries().size() == b.entries().size());
  for (const auto& [array, entry] : a.entries()) {
    if (entry.type == transformer::StoredType::i32) continue;
    const auto x = numbers(a, array), y = numbers(b, array);
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  return largest;
}

}  // namespace

TEST_CASE("a sharded run is saved as a single process saves and goes on under another form on other ranks") {
  const Training training({"--steps", "8", "--dtype", "fp64", "--bucket-mb", "0.001"});
  const auto at = [&](const std::string& name) { return training.path(name).string(); };
  REQUIRE(training.run({"--stop-at", "4", "--save", at("alone-4")}).exit_code == 0);
  REQUIRE(training.run({"--save", at("alone-8")}).exit_code == 0);
  const std::vector<std::string> forms = {"zero1_broadcast", "zero1", "zero2", "zero3"};
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const std::string form = forms[i], next = forms[(i + 1) % forms.size()];
    CAPTURE(form);
    REQUIRE(training.run({"--stop-at", "4", "--save", at(form), "-n", "3", "--parallel", form}).exit_code == 0);
    for (const char* file : {"model.safetensors", "training-4.safetensors"})
      CHECK(largest_difference_of(training.path("alone-4") / file, training.path(form) / file) < 1e-9);
    CHECK(contents(training.path("alone-4") / "config.json") == contents(training.path(form) / "config.json"));
    const Outcome outcome = run_program({ringside_binary, "train", "--resume", at(form), "--data", at("text.txt"), "--threads", "1", "-n", "2", "--parallel",
                                         next, "--bucket-mb", "0.001"}, {}, Seconds(60));
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    for (const char* file : {"model.safetensors", "training-8.safetensors"})
      CHECK(largest_difference_of(training.path("alone-8") / file, training.path(form) / file) < 1e-9);
  }
}

TEST_CASE("with sharded parameters all ranks examine and save on the way and make up a sample together") {
  const Training training({"--steps", "4", "--dtype", "fp64", "--validate-every", "2", "--sample", "20", "--temperature", "0"});
  // 64 windows of held-out text, one at a time: the third rank has one more than the others.
  const Outcome alone = training.run(), sharded = training.run({"-n", "3", "--parallel", "zero3", "--save", training.path("saved").string(), "--save-every", "1",
                                                                "--checkpoint-activations", "--accumulate", "4"});
  CAPTURE(sharded.err);
  REQUIRE(sharded.exit_code == 0);
  const auto after = [](const std::string& text, const std::string& start) { return text.substr(std::min(text.find(start), text.size())); };
  CHECK(after(sharded.out, "--- a sample of") == after(alone.out, "--- a sample of"));
  CHECK(after(alone.out, "--- a sample of").size() > 40);
  CHECK(after(sharded.out, "\nheld out ").substr(0, 20) == after(alone.out, "\nheld out ").substr(0, 20));
}

TEST_CASE("a sharded run that does not find what it was saved with says so on every rank") {
  const Training training({"--steps", "4", "--stop-at", "2", "-n", "2"});
  const auto folder = training.path("saved");
  REQUIRE(training.run({"--parallel", "zero3", "--save", folder.string()}).exit_code == 0);
  {  // a number of the parameters is another
    std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put(static_cast<char>(0x41));
  }
  const Outcome outcome = run_program({ringside_binary, "train", "--resume", folder.string(), "--data", training.path("text.txt").string(), "--stop-at", "4", "-n",
                                       "2", "--parallel", "zero3"}, {}, Seconds(60));
  CHECK(outcome.exit_code != 0);
  CHECK(contains(outcome.err, "the parameters in "));
  CHECK(contains(outcome.err, "are not those that training-2.safetensors was saved with"));
  CHECK(outcome.survivors == "");
}

}  // namespace ringside::cli


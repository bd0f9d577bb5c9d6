// Wrong models, machines and plans: each gets one sentence with its place.
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "planning/account.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::planning;

namespace {

std::string sentence_of(const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The sentence for a machine file with this text, without the path.
std::string machine_error(const std::string& text) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "machine.json";
  std::ofstream(path) << text;
  std::string sentence = sentence_of([&] { find_machine(path.string()); });
  const auto at = sentence.find("machine.json");
  return at == std::string::npos ? sentence : sentence.substr(at);
}

const std::string device = R"("device": {"peak_tflops": 1, "memory_gb": 1, "memory_gbps": 1})";

std::string plan_error(const char* model, Plan plan, const char* mesh = "") {
  return sentence_of([&] {
    plan.mesh = planned_mesh(mesh);
    account(find_model(model), plan, find_machine("h100"));
  });
}

}  // namespace

TEST_CASE("a machine file is refused with the place of the mistake") {
  CHECK(machine_error("{" + device + R"(, "levels": [{"name": "a", "group": 2, "gbps": -5}]})") ==
        "machine.json: levels[0].gbps is -5, but a number above 0 is expected");
  const auto level_error = [](const std::string& fields) {
    return machine_error("{" + device + R"(, "levels": [{"name": "a", "group": 2, "gbps": 5, )" +
                         fields + "}]}");
  };
  CHECK(level_error(R"("oversubscription": 0.5)") ==
        "machine.json: levels[0].oversubscription is 0.5, but a number of at least 1 is expected");
  CHECK(level_error(R"("oversubscription": 2)") ==
        "machine.json: levels[0].oversubscription is 2, but the innermost level joins devices, "
        "which cannot be oversubscribed: move it to the level above");
  CHECK(level_error(R"("in_network_efficiency": -1)") ==
        "machine.json: levels[0].in_network_efficiency is -1, but a number above 0 and at most 1 "
        "is expected");
  CHECK(level_error(R"("oversubscribed": 2)") ==
        "machine.json: levels[0].oversubscribed is an unknown key; known are efficiency, gbps, "
        "group, in_network_efficiency, name, oversubscription, rails, us");
  CHECK(machine_error(
            R"({"device": {"peak_tflops": 1, "memory_gb": 1, "memory_gbps": 1, "overlap": 2},
                          "levels": [{"name": "a", "group": 2, "gbps": 5}]})") ==
        "machine.json: device.overlap is 2, but a number from 0 to 1 is expected");
  CHECK(machine_error("{" + device + R"(, "levels": [{"name": "a", "group": 2, "gbp": 5}]})") ==
        "machine.json: levels[0].gbps is missing");
  CHECK(machine_error("{" + device +
                      R"(, "levels": [{"name": "a", "group": 2, "gbps": 5, "us": 1, "u": 2}]})") ==
        "machine.json: levels[0].u is an unknown key; known are efficiency, gbps, group, "
        "in_network_efficiency, name, oversubscription, rails, us");
  CHECK(machine_error("{" + device +
                      R"(, "levels": [{"name": "a", "group": 2, "gbps": 5, "us": -1}]})") ==
        "machine.json: levels[0].us is -1, but a number of at least 0 is expected");
  CHECK(
      machine_error("{" + device +
                    R"(, "levels": [{"name": "a", "group": 2, "gbps": 5, "efficiency": 1.2}]})") ==
      "machine.json: levels[0].efficiency is 1.2, but a number above 0 and at most 1 is expected");
  CHECK(machine_error("{" + device + R"(, "levels": [{"name": "a", "group": 8, "gbps": 5},
                      {"name": "b", "group": 8, "gbps": 5}]})") ==
        "machine.json: levels[1].group is 8, but levels go from the inside out: more than the 8 of "
        "levels[0] is expected");
  CHECK(machine_error("{" + device + R"(, "levels": []})") ==
        "machine.json: levels is [], but a list of objects is expected");
  CHECK(machine_error(R"({"device": {"peak_tflops": "fast"}})") ==
        "machine.json: device.peak_tflops is \"fast\", but a number above 0 is expected");
  CHECK(machine_error(R"({"device": 5})") ==
        "machine.json: device is 5, but an object {...} is expected");
  CHECK(machine_error("{\n\"device\": {\n\"peak_tflops\": oops}}") ==
        "machine.json is not JSON: the error is in line 3");
  CHECK(level_error(R"("rails": true)") ==
        "machine.json: levels[0].rails is true, but the innermost level joins devices, and rails "
        "join groups of devices: move it to the level above");
  CHECK(level_error(R"("rails": 8)") ==
        "machine.json: levels[0].rails is 8, but true or false is expected");
  const auto efficiency_error = [](const std::string& fields) {
    return machine_error(R"({"device": {"peak_tflops": 1, "memory_gb": 1, "memory_gbps": 1, )" +
                         fields + R"(}, "levels": [{"name": "a", "group": 2, "gbps": 5}]})");
  };
  CHECK(efficiency_error(R"("matmul_efficiency_by_width": [{"width": 8, "efficiency": 0.5},
                            {"width": 4, "efficiency": 0.4}])") ==
        "machine.json: device.matmul_efficiency_by_width[1].width is 4, but widths rise: more than "
        "the 8 of the row before is expected");
  CHECK(efficiency_error(R"("matmul_efficiency_by_width": [{"width": 8, "share": 0.5}])") ==
        "machine.json: device.matmul_efficiency_by_width[0].share is an unknown key; known are "
        "efficiency, width");
  CHECK(efficiency_error(
            R"("matmul_efficiency": 0.5, "matmul_efficiency_by_width": [{"width": 8}])") ==
        "machine.json: device has both matmul_efficiency and matmul_efficiency_by_width: leave out "
        "one");
  CHECK(machine_error(R"({"source": "a", "source": "b"})") ==
        "machine.json names \"source\" twice");
  CHECK(tests::contains(sentence_of([] { find_machine("a1000"); }),
                        "there is no machine or file named 'a1000' (did you mean a100?); machines: "
                        "a100, b200, h100"));
}

TEST_CASE("a model is refused with the place of the mistake") {
  CHECK(tests::contains(sentence_of([] { find_model("llama4"); }),
                        "there is no model or file named 'llama4'; sizes of Ringside: tiny, "
                        "moe-tiny, lab"));
  const TemporaryDirectory directory;
  const auto path = directory.path() / "config.json";
  const auto error_of = [&](const char* text) {
    std::ofstream(path) << text;
    const std::string sentence = sentence_of([&] { find_model(directory.path().string()); });
    return sentence.substr(std::min(sentence.find("config.json"), sentence.size()));
  };
  CHECK(error_of(R"({"model_type": "bert"})") ==
        "config.json: model_type is \"bert\", but llama, mistral, mixtral, qwen3, qwen3_moe, gpt2, "
        "deepseek_v3 "
        "or feed_forward is expected");
  CHECK(error_of(R"({"model_type": "gpt2", "vocab_size": 0.5})") ==
        "config.json: vocab_size is 0.5, but an integer from 1 to 1000000000 is expected");
  CHECK(error_of(R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 9, "n_layer": 1,
                     "n_head": 2, "n_positions": 4})") ==
        "config.json: the width 9 does not divide into 2 heads");
  CHECK(error_of(R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_layer": 1,
                     "n_head": 2, "n_positions": 4})") == "");  // "no error" has no place
}

TEST_CASE("a config.json of Hugging Face is read as transformers writes it") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json") << R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
    "rope_scaling": {"factor": 8.0}, "torch_dtype": "bfloat16", "eos_token_id": [1, 2]})";
  const Model model = find_model(directory.path().string());
  const Account result = account(model, {.sequence = 8192}, find_machine("h100"));
  CHECK(result.parameters == 8'030'261'248);  // the published size of Llama 3 8B
  CHECK(model.sequence == 131072);
}

// transformers' Llama: attention_bias adds one to q, k, v and o, mlp_bias to gate, up and down.
TEST_CASE("biases of a config.json are counted") {
  const auto parameters = [](const std::string& more) {
    const TemporaryDirectory directory;
    const auto file = directory.write("config.json", R"({
      "model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 160,
      "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2)" +
                                                         more + "}");
    return account(find_model(file.string()), {}, find_machine("h100")).parameters;
  };
  const double none = parameters("");
  CHECK(parameters(R"(, "attention_bias": false, "mlp_bias": false)") == none);
  CHECK(parameters(R"(, "attention_bias": true)") == none + 3 * (64 + 2 * 16 + 64));
  CHECK(parameters(R"(, "mlp_bias": true)") == none + 3 * (2 * 160 + 64));
}

TEST_CASE("a plan that does not divide the model is refused") {
  CHECK(plan_error("llama3-8b", {}, "tp=3") == "the 32 heads of llama3-8b do not divide by tp=3");
  CHECK(plan_error("llama3-8b", {}, "pp=64") ==
        "pp=64 has more stages than llama3-8b has blocks (32)");
  CHECK(plan_error("llama3-8b", {.chunks = 2}, "pp=4") ==
        "--chunks 2 needs --schedule interleaved, looped_bfs or interleaved_zb, not 1f1b");
  CHECK(plan_error("llama3-8b", {.schedule = "interleaved", .chunks = 9, .micro_batches = 4},
                   "pp=4") ==
        "the 32 blocks of llama3-8b do not suffice for 36 stages: choose a "
        "smaller pp or fewer --chunks");
  CHECK(plan_error("llama3-8b", {.schedule = "1f2b"}, "pp=4")
            .starts_with("there is no schedule named '1f2b'"));
  CHECK(plan_error("llama3-8b", {.schedule = "interleaved", .chunks = 2, .micro_batches = 6},
                   "pp=4") ==
        "the interleaved schedule needs a multiple of pp=4 micro-batches, not 6");
  CHECK(plan_error("llama3-8b", {.sequence_parallel = true}) ==
        "--sequence-parallel needs tensor parallel: tp=2 or more in --mesh");
  CHECK(plan_error("deepseek-v3", {}, "tp=8") ==
        "only the state of deepseek-v3 can be accounted for, and only with the axes dp and fsdp: "
        "leave out tp and pp");
  CHECK(plan_error("llama3-8b", {}, "dp=100000") ==
        "the plan needs 100000 devices, but h100 has 16384: its widest level is InfiniBand");
  CHECK(plan_error("llama3-8b", {}, "tp=4,tp=2") ==
        "--mesh tp=4,tp=2: the axis tp is named twice; name it once");
  CHECK(plan_error("llama3-8b", {}, "tp") ==
        "--mesh tp: expected AXIS=SIZE, got 'tp'; write for example --mesh pp=2,dp=2,tp=2");
  CHECK(tests::contains(plan_error("llama3-8b", {}, "tp=8,"), "expected AXIS=SIZE, got ''"));
  CHECK(plan_error("llama3-8b", {}, "tp=-2") ==
        "--mesh tp=-2: expected a size of tp from 1 to 1000000, got '-2'");
  CHECK(plan_error("llama3-8b", {}, "ep=2") ==
        "ep divides experts, and llama3-8b has none: leave out ep");
  CHECK(plan_error("korthikanti-175b", {.sequence = 2048}, "cp=2") ==
        "context parallel is known for models with fused attention only, not for korthikanti-175b: "
        "leave "
        "out cp");
  CHECK(plan_error("llama3-8b", {.sequence = 8190}, "cp=4") ==
        "sequences of 8190 tokens do not divide into 8 equal pieces, which zigzag order needs on 4 "
        "context-parallel ranks: choose a --sequence that is a multiple of 8");
  // 8 key heads are replicated twice on 16 ranks; 24 ranks would share them unevenly.
  CHECK(plan_error("llama3-405b", {}, "tp=16") == "no error");
}

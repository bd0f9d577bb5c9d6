#include "transformer/checkpoint/config_file.hpp"

#include <cstdint>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tests/read_json.hpp"
#include "tests/text.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using tests::contains;
using tests::read_json;
using tests::tiny_config;

namespace {

std::string refusal(const Json& config) {
  TemporaryDirectory directory;
  const auto path = directory.write("config.json", config.dump());
  try {
    load_config(directory.path());
  } catch (const Error& error) {
    const std::string message = error.what();
    REQUIRE(message.starts_with(path.string() + " "));
    return message.substr(path.string().size() + 1);
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a Qwen3 that computes otherwise is refused with what is different") {
  TemporaryDirectory directory;
  Config config = tiny_config();
  config.qk_norm = true, config.experts = 3;
  save_checkpoint(directory.path(), Model(config));
  const Json saved = read_json(directory.path() / "config.json");
  const auto with = [&](const char* key, const Json& value) -> std::string {
    Json json = saved;
    json[key] = value;
    std::ofstream(directory.path() / "config.json") << json.dump();
    try {
      load_config(directory.path());
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.substr(text.find("cannot be used: ") + 16);
    }
    return "";
  };
  CHECK(with("sliding_window", 4096) == "");
  CHECK(with("use_sliding_window", true) ==
        "its attention has a window (use_sliding_window), but that of Ringside's model sees all");
  CHECK(with("layer_types", Json{"full_attention", "full_attention"}) == "");
  CHECK(with("layer_types", Json{"full_attention", "sliding_attention"}) ==
        "it has blocks of type \"sliding_attention\" (layer_types), but Ringside's model has "
        "full_attention alone");
  CHECK(with("mlp_only_layers", Json{0}) ==
        "it has blocks without experts (decoder_sparse_step 1, mlp_only_layers [0]), but in "
        "Ringside's model all blocks have them");
  CHECK(with("norm_topk_prob", false) ==
        "the weights of a token's experts do not add up to 1 (norm_topk_prob false), but in "
        "Ringside's model they do");
  CHECK(with("num_experts", 0) == "its num_experts is 0: a model with experts has at least 1");
}

TEST_CASE("a key that is absent from config.json has the default of its family") {
  // Those of transformers: LlamaConfig, MixtralConfig, Qwen3Config, Qwen3MoeConfig.
  struct Family {
    bool qk_norm;
    std::int64_t experts, kv_heads, head_dim, sequence, experts_per_token;
    double norm_epsilon, rope_theta, balance;
  };
  for (const Family& family : {Family{false, 0, 32, 0, 2048, 2, 1e-6, 1e4, 0},
                               Family{false, 3, 8, 0, 131072, 2, 1e-5, 1e6, 0.001},
                               Family{true, 0, 32, 128, 32768, 2, 1e-6, 1e4, 0},
                               Family{true, 9, 4, 0, 32768, 8, 1e-6, 1e4, 0.001}}) {
    TemporaryDirectory directory;
    Config config = tiny_config();
    config.d_model = 64, config.heads = 32, config.kv_heads = 16, config.head_dim = 6;
    config.qk_norm = family.qk_norm, config.experts = family.experts;
    config.norm_epsilon = 0.5, config.rope_theta = 7, config.balance = 0.5;
    save_config(directory.path(), config, DType::fp32);
    Json json = read_json(directory.path() / "config.json");
    CAPTURE(json["model_type"].text());
    for (const char* key : {"num_key_value_heads", "head_dim", "max_position_embeddings",
                            "num_experts_per_tok", "rms_norm_eps", "rope_theta",
                            "router_aux_loss_coef", "tie_word_embeddings", "hidden_act"})
      json.erase(key);
    directory.write("config.json", json.dump());
    const Config read = load_config(directory.path());
    CHECK(read.kv_heads == family.kv_heads);
    CHECK(read.head_dim == family.head_dim);
    CHECK(read.sequence == family.sequence);
    CHECK(read.norm_epsilon == family.norm_epsilon);
    CHECK(read.rope_theta == family.rope_theta);
    CHECK_FALSE(read.tied_head);
    if (family.experts == 0) continue;
    CHECK(read.experts_per_token == family.experts_per_token);
    CHECK(read.balance == family.balance);
    json.erase(family.qk_norm ? "num_experts" : "num_local_experts");
    json.erase("norm_topk_prob");  // by default false
    CHECK(contains(refusal(json),
                   family.qk_norm ? "(norm_topk_prob false)" : "it has no num_local_experts"));
  }
}

TEST_CASE("a config of an unsupported model is refused with the reason") {
  TemporaryDirectory directory;
  save_checkpoint(directory.path(), Model(tiny_config()));
  const Json good = read_json(directory.path() / "config.json");
  const auto with = [&](const char* key, const Json& value) {
    Json changed = good;
    changed[key] = value;
    return refusal(changed);
  };
  CHECK(refusal(good) == "accepted");
  CHECK(with("model_type", "gpt2") ==
        "cannot be used: it does not describe a Llama model (model_type \"llama\"), a Mixtral "
        "(\"mixtral\"), a Qwen3 (\"qwen3\") or a Qwen3-MoE (\"qwen3_moe\")");
  CHECK(with("hidden_act", "gelu") ==
        "cannot be used: its activation (hidden_act) is \"gelu\", but Ringside's is silu");
  CHECK(with("attention_bias", true) ==
        "cannot be used: it asks for biases (attention_bias), but Ringside's model has none");
  CHECK(with("rope_scaling", Json{{"type", "linear"}}) ==
        "cannot be used: its rope_scaling has no factor");
  CHECK(with("head_dim", 4) == "accepted");
  CHECK(with("head_dim", 2) == "accepted");
  CHECK(with("head_dim", 3) ==
        "cannot be used: a head is 3 wide (head_dim), but RoPE rotates pairs and needs an even "
        "width");
  CHECK(with("head_dim", -2) == "cannot be used: head_dim is -2, but 1 to 1000000 is possible");
  Json overflows = good;  // 8 of these are hidden_size, but for the bits that do not fit
  overflows["num_attention_heads"] = 8, overflows["num_key_value_heads"] = 8;
  overflows["head_dim"] = good["hidden_size"].get<std::int64_t>() / 8 + (std::int64_t{1} << 61);
  CHECK(contains(refusal(overflows), "but 1 to 1000000 is possible"));
  CHECK(
      with("quantization_config", Json{{"bits", 4}}) ==
      "cannot be used: it has the key \"quantization_config\" = {\"bits\":4}, which Ringside does "
      "not know: if it does not change the numbers of the model, remove it from the file");
  CHECK(with("quantization_config", Json()) == "accepted");
  CHECK(with("sliding_window", Json()) == "accepted");
  CHECK(with("sliding_window", 128) ==
        "cannot be used: its attention sees 128 tokens back (sliding_window), but that of "
        "Ringside's model sees all");
  CHECK(with("router_jitter_noise", 0.1) ==
        "cannot be used: it multiplies the router's input by noise (router_jitter_noise 0.1), but "
        "Ringside's model does not");
  CHECK(with("model_type", "mixtral") == "cannot be used: it has no num_local_experts");
  CHECK(with("attention_dropout", 0.0) == "accepted");
  CHECK(with("attention_dropout", 0.1) ==
        "cannot be used: it asks for dropout (attention_dropout 0.1), but Ringside's model has "
        "none");
  CHECK(with("partial_rotary_factor", 0.5) ==
        "cannot be used: it rotates only a part of each head (partial_rotary_factor 0.5), but "
        "Ringside's model rotates all");
  CHECK(with("temperature", 0.6) == "accepted");
  CHECK(with("is_llama_config", true) == "accepted");
  CHECK(with("transformers.js_config", Json{{"dtype", "q4"}}) == "accepted");
  CHECK(with("rope_interleaved", false) == "accepted");
  CHECK(with("rope_interleaved", true) ==
        "cannot be used: it rotates neighbouring numbers of a head (rope_interleaved), but "
        "Ringside's model those of both halves");
  CHECK(with("tie_word_embeddings", "yes") ==
        "cannot be used: its tie_word_embeddings is \"yes\", not true or false");
  Json three_heads = good;
  three_heads.erase("head_dim");
  three_heads["num_attention_heads"] = 3;
  CHECK(refusal(three_heads) ==
        "cannot be used: d_model 8 does not divide into 3 heads: choose a width that is a multiple "
        "of the number of heads (in the file, d_model is hidden_size and heads is "
        "num_attention_heads)");
  CHECK(with("vocab_size", "many") == "cannot be used: its vocab_size is \"many\", not an integer");
  CHECK(with("hidden_size", 8.5) == "cannot be used: its hidden_size is 8.5, not an integer");
  CHECK(with("hidden_size", 1e300) == "cannot be used: its hidden_size is 1e+300, not an integer");
  CHECK(with("num_key_value_heads", Json()) == "accepted");  // null: as many as query heads
  CHECK(with("rms_norm_eps", "small") ==
        "cannot be used: its rms_norm_eps is \"small\", not a number");
  CHECK(with("hidden_size", Json()) == "cannot be used: it has no hidden_size");
  CHECK(with("rope_parameters", Json{{"rope_type", "default"}, {"rope_theta", 7.0}}) == "accepted");
  CHECK(
      with("rope_parameters", Json{{"rope_type", "yarn"}}) ==
      "cannot be used: it scales positions (rope_parameters with rope_type \"yarn\") in a way that "
      "Ringside does not support: it has default, linear, dynamic and llama3");
  CHECK(with("rope_parameters", Json{{"rope_type", "default"}, {"mscale", 2}}) ==
        "cannot be used: its rope_parameters has the key \"mscale\", which Ringside does not know");
  const auto text = directory.write("config.json", good.dump() + '\0' + good.dump());
  const std::string after_its_end = text.string() +
                                    " is not JSON: the error is in line 1, at byte " +
                                    std::to_string(good.dump().size());
  CHECK_THROWS_WITH_AS(load_config(directory.path()), after_its_end.c_str(), Error);
  const std::string nowhere = (directory.path() / "no" / "config.json").string();
  CHECK_THROWS_WITH_AS(load_config(directory.path() / "no"),
                       ("cannot read " + nowhere + ": is its folder a checkpoint?").c_str(), Error);
}

namespace {

// The configuration that load_config() reads from a good config.json with other parameters of RoPE.
// The file has "rope_theta": 500 at its top.
Config with_rope(const char* key, const Json& rope) {
  TemporaryDirectory directory;
  save_config(directory.path(), tiny_config(), DType::fp32);
  Json json = read_json(directory.path() / "config.json");
  json[key] = rope;
  directory.write("config.json", json.dump());
  return load_config(directory.path());
}

}  // namespace

TEST_CASE("the parameters of RoPE are read as transformers reads them") {
  // The base at the top holds where the parameters name none.
  CHECK(with_rope("rope_parameters", Json{{"rope_type", "default"}}).rope_theta == 500);
  CHECK(with_rope("rope_parameters", Json{{"rope_theta", 7.0}}).rope_theta == 7);
  CHECK(with_rope("rope_parameters", Json()).rope_theta == 500);
  CHECK(with_rope("rope_scaling", Json{{"type", "default"}}).rope_theta == 500);

  for (const char* key : {"rope_scaling", "rope_parameters"})
    for (const char* type : {"type", "rope_type"}) {
      CAPTURE(key);
      CAPTURE(type);
      const Config linear = with_rope(key, Json{{type, "linear"}, {"factor", 2.5}});
      CHECK(linear.rope_scaling.kind == RopeScaling::linear);
      CHECK(linear.rope_scaling.factor == 2.5);
      CHECK(linear.rope_theta == 500);
      const Config dynamic = with_rope(key, Json{{type, "dynamic"}, {"factor", 2.5}});
      CHECK(dynamic.rope_scaling.kind == RopeScaling::none);
      const Config llama3 = with_rope(key, Json{{type, "llama3"},
                                                {"factor", 8.0},
                                                {"low_freq_factor", 1.5},
                                                {"high_freq_factor", 3.5},
                                                {"original_max_position_embeddings", 6}});
      CHECK(llama3.rope_scaling.kind == RopeScaling::llama3);
      CHECK(llama3.rope_scaling.factor == 8);
      CHECK(llama3.rope_scaling.low_frequency == 1.5);
      CHECK(llama3.rope_scaling.high_frequency == 3.5);
      CHECK(llama3.rope_scaling.old_sequence == 6);

      TemporaryDirectory again;
      save_config(again.path(), llama3, DType::fp32);
      CHECK(rope_frequencies(load_config(again.path())) == rope_frequencies(llama3));
      save_config(again.path(), linear, DType::fp32);
      CHECK(rope_frequencies(load_config(again.path())) == rope_frequencies(linear));
    }
}

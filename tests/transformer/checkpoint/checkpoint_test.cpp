#include "transformer/checkpoint/checkpoint.hpp"

#include <cstring>
#include <functional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/text.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;
using tests::tiny_config;

namespace {

Json read_json(const std::filesystem::path& path) {
  return Json::parse(read_file(path));
}

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

template <class T>
bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data<T>(), b.data<T>(), a.values<T>().size_bytes()) == 0;
}

}  // namespace

TEST_CASE("a saved model is loaded again bit for bit") {
  for (const bool tied : {false, true}) {
    TemporaryDirectory directory;
    Config config = tiny_config();
    config.tied_head = tied;
    const Model saved(config);
    save_checkpoint(directory.path() / "deep" / "down", saved);

    Config read = load_config(directory.path() / "deep" / "down");
    CHECK(read.vocabulary == 17);
    CHECK(read.layers == 2);
    CHECK(read.kv_heads == 2);
    CHECK(read.rope_theta == 500);
    CHECK(read.norm_epsilon == 1e-4);
    CHECK(read.sequence == 10);
    CHECK(read.tied_head == tied);
    read.initialise_seed = 99;  // other values before loading
    const Model loaded(read);
    load_parameters(directory.path() / "deep" / "down", loaded);
    const auto a = saved.named_parameters(), b = loaded.named_parameters();
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(same<float>(a[i].tensor, b[i].tensor));
  }
}

TEST_CASE("a checkpoint has the files and keys that transformers reads") {
  TemporaryDirectory directory;
  const Model model(tiny_config());
  save_checkpoint(directory.path(), model);
  const Json config = read_json(directory.path() / "config.json");
  CHECK(config["architectures"] == Json{"LlamaForCausalLM"});
  CHECK(config["model_type"] == "llama");
  CHECK(config["hidden_size"] == 8);
  CHECK(config["intermediate_size"] == 6);
  CHECK(config["num_hidden_layers"] == 2);
  CHECK(config["num_attention_heads"] == 4);
  CHECK(config["num_key_value_heads"] == 2);
  CHECK(config["rms_norm_eps"] == 1e-4);
  CHECK(config["torch_dtype"] == "float32");
  SafetensorsFile file(directory.path() / "model.safetensors");
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.entries().size() == 21);
  CHECK(file.entry("model.layers.1.self_attn.k_proj.weight").shape ==
        std::vector<std::int64_t>{4, 8});
}

TEST_CASE("a model with experts is saved as a Mixtral, and loaded again bit for bit") {
  TemporaryDirectory directory;
  Config config = tiny_config();
  config.experts = 3, config.experts_per_token = 2, config.balance = 0.03;
  const Model saved(config);
  save_checkpoint(directory.path(), saved);
  const Json json = read_json(directory.path() / "config.json");
  CHECK(json["architectures"] == Json{"MixtralForCausalLM"});
  CHECK(json["num_local_experts"] == 3);
  Config read = load_config(directory.path());
  CHECK(read.experts == 3);
  CHECK(read.experts_per_token == 2);
  CHECK(read.balance == 0.03);
  read.initialise_seed = 99;
  const Model loaded(read);
  load_parameters(directory.path(), loaded);
  const auto a = saved.named_parameters(), b = loaded.named_parameters();
  REQUIRE(a.size() == b.size());
  REQUIRE(a.size() == 3 + 2 * (6 + 1 + 3 * 3));
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(same<float>(a[i].tensor, b[i].tensor));
  SafetensorsFile file(directory.path() / "model.safetensors");
  CHECK(file.entry("model.layers.1.block_sparse_moe.experts.2.w2.weight").shape ==
        autograd::Shape{8, 6});
  CHECK(file.entry("model.layers.1.block_sparse_moe.gate.weight").shape == autograd::Shape{3, 8});
}

TEST_CASE("a model with norms of heads is saved as a Qwen3, with experts as a Qwen3-MoE") {
  for (const std::int64_t experts : {0, 3}) {
    CAPTURE(experts);
    TemporaryDirectory directory;
    Config config = tiny_config();
    config.qk_norm = true, config.head_dim = 6, config.experts = experts;
    const Model saved(config);
    save_checkpoint(directory.path(), saved);
    const Json json = read_json(directory.path() / "config.json");
    CHECK(json["model_type"] == (experts > 0 ? "qwen3_moe" : "qwen3"));
    CHECK(json["architectures"] == Json{experts > 0 ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM"});
    Config read = load_config(directory.path());
    CHECK(read.qk_norm);
    CHECK(read.experts == experts);
    CHECK(read.d_ff == config.d_ff);
    read.initialise_seed = 99;
    const Model loaded(read);
    load_parameters(directory.path(), loaded);
    const auto a = saved.named_parameters(), b = loaded.named_parameters();
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(same<float>(a[i].tensor, b[i].tensor));
    std::int64_t numbers = 0;
    for (const auto& [name, tensor] : a) numbers += tensor.elements();
    CHECK(numbers == parameter_count(config));
    SafetensorsFile file(directory.path() / "model.safetensors");
    CHECK(file.entry("model.layers.1.self_attn.k_norm.weight").shape == autograd::Shape{6});
    if (experts > 0)
      CHECK(file.entry("model.layers.1.mlp.experts.2.down_proj.weight").shape ==
            autograd::Shape{8, 6});
  }
}

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

TEST_CASE("loading converts numbers to the dtype of the model") {
  TemporaryDirectory directory;
  const Model saved(tiny_config(), DType::fp32), loaded(tiny_config(), DType::fp64);
  save_checkpoint(directory.path(), saved);
  load_parameters(directory.path(), loaded);
  for (std::size_t i = 0; i < saved.parameters().size(); ++i) {
    CHECK(loaded.parameters()[i].values<double>()[0] == saved.parameters()[i].values<float>()[0]);
  }
}

TEST_CASE("BF16 is loaded as the upper half of a float") {
  TemporaryDirectory directory;
  const Model model(tiny_config());
  std::vector<std::vector<std::uint16_t>> halves;
  std::vector<ArrayView> arrays;
  for (const auto& [name, tensor] : model.named_parameters()) {
    halves.emplace_back(static_cast<std::size_t>(tensor.elements()), std::uint16_t{0xc040});  // -3
    arrays.push_back(
        {name, StoredType::bf16, tensor.shape(), std::as_bytes(std::span(halves.back()))});
  }
  write_safetensors(directory.path() / "model.safetensors", arrays);
  load_parameters(directory.path(), model);
  for (const Tensor& parameter : model.parameters()) CHECK(parameter.values<float>().back() == -3);
}

TEST_CASE("parameters that do not fit the model are refused by name") {
  TemporaryDirectory directory;
  const std::string file = (directory.path() / "model.safetensors").string();
  save_checkpoint(directory.path(), Model(tiny_config()));

  Config wider = tiny_config();
  wider.d_ff = 7;
  CHECK_THROWS_WITH_AS(load_parameters(directory.path(), Model(wider)),
                       "'model.layers.0.mlp.gate_proj.weight' has shape [6, 8] in the checkpoint "
                       "but [7, 8] in the model",
                       Error);
  Config deeper = tiny_config();
  deeper.layers = 3;
  CHECK_THROWS_WITH_AS(
      load_parameters(directory.path(), Model(deeper)),
      (file + " holds no array named 'model.layers.2.input_layernorm.weight'").c_str(), Error);
  Config flatter = tiny_config();
  flatter.layers = 1;
  CHECK_THROWS_WITH_AS(
      load_parameters(directory.path(), Model(flatter)),
      (file +
       " holds 'model.layers.1.input_layernorm.weight', which is not a parameter of this model")
          .c_str(),
      Error);
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

TEST_CASE(
    "the wrapper whose prefix the names of parameters have is named, and how it is stripped") {
  const Model model(tiny_config());
  for (const auto& [prefix, wrapper] :
       {std::pair("module.", "DistributedDataParallel"), std::pair("_orig_mod.", "torch.compile"),
        std::pair("_fsdp_wrapped_module.", "FullyShardedDataParallel"),
        std::pair("model.layers.1._checkpoint_wrapped_module.", "checkpoint_wrapper")}) {
    TemporaryDirectory directory;
    save_config(directory.path(), tiny_config(), DType::fp32);
    const std::string text = prefix;
    std::vector<NamedTensor> parameters = model.named_parameters();
    std::vector<ArrayView> arrays;
    for (NamedTensor& each : parameters) {
      if (text.starts_with("model.")) {
        if (each.name.starts_with("model.layers.1.")) each.name.replace(0, 15, text);
      } else {
        each.name = text + each.name;
      }
      arrays.push_back(view_of(each.name, each.tensor));
    }
    write_safetensors(directory.path() / "model.safetensors", arrays);
    std::string seen = "accepted";
    try {
      load_parameters(directory.path(), model);
    } catch (const Error& error) {
      seen = error.what();
    }
    CAPTURE(seen);
    CHECK(contains(seen,
                   "' is that of " + std::string(wrapper) + ". Save the model without it (model."));
    CHECK(contains(seen, "strip it: python3 -c \"from safetensors.torch import load_file"));
    CHECK(contains(seen, "model.safetensors'; save_file("));
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

TEST_CASE("a head_dim of its own is saved and loaded") {
  TemporaryDirectory directory;
  Config config = tiny_config();
  config.head_dim = 6;
  const Model saved(config);
  save_checkpoint(directory.path(), saved);
  const Config read = load_config(directory.path());
  CHECK(read.head_size() == 6);
  std::int64_t values = 0;
  for (const Tensor& parameter : saved.parameters()) values += parameter.elements();
  CHECK(parameter_count(read) == values);
  load_parameters(directory.path(), Model(read));
}

TEST_CASE("a tied head with another matrix in the file is refused") {
  TemporaryDirectory directory;
  Config tied = tiny_config();
  tied.tied_head = true;
  save_checkpoint(directory.path(), Model(tiny_config()));  // with a head of its own
  const std::string file = (directory.path() / "model.safetensors").string();
  CHECK_THROWS_WITH_AS(
      load_parameters(directory.path(), Model(tied)),
      (file + " holds a 'lm_head.weight' of its own, but config.json says that the head uses the "
              "embedding's matrix (tie_word_embeddings): set it to false, or remove the array")
          .c_str(),
      Error);
  // The same matrix twice, as some files have it.
  const Model twice(tied);
  std::vector<ArrayView> arrays;
  for (const auto& [name, tensor] : twice.named_parameters())
    arrays.push_back(view_of(name, tensor));
  arrays.push_back(view_of("lm_head.weight", twice.parameters().front()));
  write_safetensors(file, arrays);
  CHECK_NOTHROW(load_parameters(directory.path(), twice));
}

namespace {

// Writes all parameters of a model, stored as 16 bits each, and loads them.
void load_16_bits(const Model& model, StoredType type, std::uint16_t bits) {
  TemporaryDirectory directory;
  std::vector<std::vector<std::uint16_t>> halves;
  std::vector<ArrayView> arrays;
  for (const auto& [name, tensor] : model.named_parameters()) {
    halves.emplace_back(static_cast<std::size_t>(tensor.elements()), bits);
    arrays.push_back({name, type, tensor.shape(), std::as_bytes(std::span(halves.back()))});
  }
  write_safetensors(directory.path() / "model.safetensors", arrays);
  load_parameters(directory.path(), model);
}

}  // namespace

TEST_CASE("F16 is loaded as IEEE 754 defines it") {
  const Model model(tiny_config());
  const std::pair<std::uint16_t, float> numbers[] = {
      {0x0000, 0.0f},          {0x3c00, 1.0f},         {0xc500, -5.0f},
      {0x7bff, 65504.0f},      {0x3555, 0.33325195f},  {0x0400, 6.1035156e-5f},
      {0x0001, 5.9604645e-8f}, {0x83ff, -6.097555e-5f}};
  for (const auto& [bits, value] : numbers) {
    load_16_bits(model, StoredType::f16, bits);
    for (const Tensor& parameter : model.parameters())
      CHECK(parameter.values<float>().back() == value);
  }
}

TEST_CASE("parameters that are not finite are refused by name") {
  for (const auto& [type, bits] : {std::pair(StoredType::f16, 0x7c00),
                                   {StoredType::f16, 0x7e00},
                                   {StoredType::bf16, 0xff80},
                                   {StoredType::bf16, 0x7fc0}})
    CHECK_THROWS_WITH_AS(
        load_16_bits(Model(tiny_config()), type, static_cast<std::uint16_t>(bits)),
        "'model.embed_tokens.weight' has values that are infinite or not a number: the run that "
        "saved it had diverged",
        Error);
}

namespace {

// Saves a checkpoint in three shards, as Hugging Face's libraries do. `change` may modify the
// index.
void save_in_shards(const std::filesystem::path& directory, const Model& model,
                    const std::function<void(Json&)>& change = {}) {
  save_checkpoint(directory, model);
  std::filesystem::remove(directory / "model.safetensors");
  const auto parameters = model.named_parameters();
  Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
  for (std::size_t shard = 0; shard < 3; ++shard) {
    const std::string name = fmt::format("model-0000{}-of-00003.safetensors", shard + 1);
    std::vector<ArrayView> arrays;
    for (std::size_t i = shard * parameters.size() / 3; i < (shard + 1) * parameters.size() / 3;
         ++i) {
      arrays.push_back(view_of(parameters[i].name, parameters[i].tensor));
      index["weight_map"][parameters[i].name] = name;
    }
    write_safetensors(directory / name, arrays, {{"format", "pt"}});
  }
  if (change) change(index);
  std::ofstream(directory / "model.safetensors.index.json") << index.dump(2);
}

}  // namespace

TEST_CASE("a checkpoint in shards loads like one in a single file") {
  TemporaryDirectory directory;
  const Model saved(tiny_config());
  save_in_shards(directory.path(), saved);
  Config read = load_config(directory.path());
  read.initialise_seed = 99;
  const Model loaded(read);
  load_parameters(directory.path(), loaded);
  const auto a = saved.named_parameters(), b = loaded.named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(same<float>(a[i].tensor, b[i].tensor));
  // As in transformers, model.safetensors takes precedence over an index.
  save_checkpoint(directory.path(), saved);
  directory.write("model.safetensors.index.json", "no index");
  CHECK_NOTHROW(load_parameters(directory.path(), loaded));
}

TEST_CASE("an index that does not match its shards is refused with the reason") {
  const std::string one = "model-00001-of-00003.safetensors",
                    two = "model-00002-of-00003.safetensors";
  const auto refusal = [&](const std::function<void(Json&)>& change,
                           const std::function<void(const std::filesystem::path&)>& damage = {}) {
    TemporaryDirectory directory;
    const Model model(tiny_config());
    save_in_shards(directory.path(), model, change);
    if (damage) damage(directory.path());
    try {
      load_parameters(directory.path(), model);
    } catch (const Error& error) {
      const std::string message = error.what(),
                        start = (directory.path() / "model.safetensors.index.json").string() +
                                " cannot be used: ";
      REQUIRE(message.starts_with(start));
      return message.substr(start.size());
    }
    return std::string("accepted");
  };
  const auto with = [&](const char* name, const Json& file) {
    return refusal([&](Json& index) { index["weight_map"][name] = file; });
  };
  CHECK(refusal({}) == "accepted");
  CHECK(refusal({}, [&](const auto& directory) {
          std::filesystem::remove(directory / two);
        }).ends_with(" is in " + two + ", which does not exist"));
  CHECK(refusal({}, [&](const auto& directory) {
          std::filesystem::resize_file(directory / two,
                                       std::filesystem::file_size(directory / two) - 4);
        }).find("it was cut short") != std::string::npos);
  CHECK(with("model.norm.weight", one) ==
        "it says that \"model.norm.weight\" is in " + one + ", which does not contain it");
  CHECK(refusal([](Json& index) { index["weight_map"].erase("model.norm.weight"); }) ==
        "it does not name \"model.norm.weight\", which model-00003-of-00003.safetensors contains");
  for (const char* outside :
       {"../model.safetensors", "/etc/model.safetensors", "..", "a/b.safetensors",
        "a\\b.safetensors", "", ".safetensors", "model.bin"}) {
    CHECK(with("model.norm.weight", outside) ==
          fmt::format("it says that \"model.norm.weight\" is in {}, which is not a safetensors "
                      "file in the same directory",
                      Json(outside).dump()));
  }
  CHECK(with("model.norm.weight", 7) ==
        "it says that \"model.norm.weight\" is in 7, which is not a safetensors file in the "
        "same directory");
  CHECK(refusal([](Json& index) { index.erase("weight_map"); }) ==
        "it has no weight_map from array names to files");
  CHECK(refusal([](Json& index) { index["weight_map"] = Json::object(); }) ==
        "its weight_map names no array");
  const auto index_is = [&](const std::string& text) {
    return refusal({}, [&](const auto& directory) {
      std::ofstream(directory / "model.safetensors.index.json") << text;
    });
  };
  CHECK(index_is("{") == "it is not JSON");
  CHECK(index_is("[]") == "it has no weight_map from array names to files");
  CHECK(index_is(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})") ==
        "it names \"a\" twice");
  CHECK(index_is(std::string(100'000, '[')) == "it is nested more than 8 levels deep");
  // The same array in two shards.
  CHECK(refusal({},
                [&](const auto& directory) {
                  std::vector<std::byte> bytes(1000);
                  std::vector<ArrayView> arrays;
                  {
                    const SafetensorsFile before(directory / two);
                    for (const auto& [name, entry] : before.entries())
                      arrays.push_back(
                          {name, entry.type, entry.shape, std::span(bytes).first(entry.bytes())});
                  }
                  arrays.push_back(
                      {"model.norm.weight", StoredType::f32, {1}, std::span(bytes).first(4)});
                  write_safetensors(directory / two, arrays);
                }) ==
        "it says that \"model.norm.weight\" is in model-00003-of-00003.safetensors, but " + two +
            " contains it too");
}

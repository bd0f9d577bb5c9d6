#include "transformer/checkpoint/checkpoint.hpp"

#include <cstring>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tests/read_json.hpp"
#include "tests/text.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;
using tests::contains;
using tests::read_json;
using tests::tiny_config;

namespace {

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

TEST_CASE(
    "the wrapper whose prefix the names of parameters have is named, and how it is stripped") {
  const Model model(tiny_config());
  for (const auto& [prefix, wrapper] :
       {std::pair("module.", "DistributedDataParallel"), std::pair("_orig_mod.", "torch.compile"),
        std::pair("_fsdp_wrapped_module.", "FullyShardedDataParallel"),
        std::pair("model.layers.1._checkpoint_wrapped_module.", "checkpoint_wrapper"),
        std::pair("_orig_mod.module.",
                  "torch.compile, 'module.' is that of DistributedDataParallel"),
        std::pair("module._orig_mod.",
                  "torch.compile, 'module.' is that of DistributedDataParallel"),
        std::pair("_fsdp_wrapped_module.model.layers.1._fsdp_wrapped_module.",
                  "FullyShardedDataParallel")}) {
    TemporaryDirectory directory;
    save_config(directory.path(), tiny_config(), DType::fp32);
    const std::string text = prefix;
    std::vector<NamedTensor> parameters = model.named_parameters();
    std::vector<ArrayView> arrays;
    for (NamedTensor& each : parameters) {
      if (contains(text, "model.layers.1.")) {
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
    CHECK(contains(seen, "' is that of " + std::string(wrapper) + ". Save the model without it"));
    CHECK(contains(seen, "it (model.") == !contains(wrapper, ","));
    CHECK(contains(seen, "strip it: python3 -c \"from safetensors.torch import load_file"));
    CHECK(contains(seen, "save_file({k.replace('"));
    CHECK(contains(seen, ".replace('_orig_mod.', '').replace('module.', ''): v") ==
          contains(wrapper, ","));
    CHECK(contains(seen, "model.safetensors'; save_file("));
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

#include "transformer/checkpoint/config_file.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

#include "base/atomic_file.hpp"
#include "base/error.hpp"

namespace ringside::transformer {

using autograd::DType;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

nlohmann::ordered_json config_json(const Config& config, DType dtype) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", config.vocabulary},
          {"hidden_size", config.d_model},
          {"intermediate_size", config.d_ff},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"max_position_embeddings", config.sequence},
          {"hidden_act", "silu"},
          {"rms_norm_eps", config.norm_epsilon},
          {"rope_theta", config.rope_theta},
          {"tie_word_embeddings", config.tied_head},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"initializer_range", 0.02},
          {"bos_token_id", nullptr},  // a vocabulary of bytes has no such tokens
          {"eos_token_id", nullptr},
          {"torch_dtype", dtype == DType::fp64   ? "float64"
                          : dtype == DType::bf16 ? "bfloat16"
                                                 : "float32"},
          {"use_cache", true}};
}

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  require(file.is_open(), "cannot read {}: is its folder a checkpoint?", path.string());
  try {
    return Json::parse(file);
  } catch (const Json::exception&) {
    fail("{} is not JSON", path.string());
  }
}

// Throws Error if the config asks for something that Ringside's model does not have.
void refuse_other_models(const Json& json) {
  require(json.is_object() && json.value("model_type", Json()) == "llama",
          "it does not describe a Llama model (model_type \"llama\")");
  const Json activation = json.value("hidden_act", Json("silu"));
  require(activation == "silu", "its activation is {}, but Ringside's is silu", activation.dump());
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    require(json.value(bias, Json(false)) == false,
            "it asks for biases ({}), but Ringside's model has none", bias);
  }
  require(json.value("rope_scaling", Json()).is_null(),
          "it scales positions (rope_scaling), which Ringside does not support");
}

std::int64_t integer(const Json& json, const char* key) {
  const Json& value = json.at(key);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{1} << 62);
  require(fits, "its {} is {:.60}, not an integer", key, value.dump(-1, ' ', true));
  return value.get<std::int64_t>();
}

std::int64_t integer(const Json& json, const char* key, std::int64_t if_absent) {
  return json.value(key, Json()).is_null() ? if_absent : integer(json, key);
}

// Newer versions of transformers keep the base in "rope_parameters".
double rope_theta_of(const Json& json) {
  const Json parameters = json.value("rope_parameters", Json());
  if (!parameters.is_object()) return json.value("rope_theta", 10000.0);
  const Json kind = parameters.value("rope_type", Json("default"));
  require(kind == "default", "it scales positions (rope_type {}), which Ringside does not support",
          kind.dump());
  return parameters.value("rope_theta", 10000.0);
}

}  // namespace

Config load_config(const fs::path& directory) {
  const fs::path path = directory / "config.json";
  const Json json = read_json(path);
  try {
    refuse_other_models(json);
    Config config;
    config.vocabulary = integer(json, "vocab_size");
    config.d_model = integer(json, "hidden_size");
    config.d_ff = integer(json, "intermediate_size");
    config.layers = integer(json, "num_hidden_layers");
    config.heads = integer(json, "num_attention_heads");
    config.kv_heads = integer(json, "num_key_value_heads", config.heads);
    config.sequence = integer(json, "max_position_embeddings", 2048);
    config.norm_epsilon = json.value("rms_norm_eps", 1e-6);
    config.rope_theta = rope_theta_of(json);
    config.tied_head = json.value("tie_word_embeddings", false);
    validate(config);
    const Json head_size = json.value("head_dim", Json());
    require(head_size.is_null() || head_size == config.head_size(),
            "its heads are {} wide, but Ringside's are d_model / heads = {}", head_size.dump(),
            config.head_size());
    return config;
  } catch (const Json::exception& exception) {
    fail("{} does not describe a Llama model: {}", path.string(), exception.what());
  } catch (const Error& problem) {
    fail("{} cannot be used: {}", path.string(), problem.what());
  }
}

void save_config(const fs::path& directory, const Config& config, DType dtype) {
  AtomicFile file(directory / "config.json");
  file.write(config_json(config, dtype).dump(2) + "\n");
  file.commit();
}

}  // namespace ringside::transformer

#include "transformer/checkpoint/config_file.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "transformer/checkpoint/families.hpp"
#include "transformer/checkpoint/strict_json.hpp"

namespace ringside::transformer {

using autograd::DType;

namespace {

namespace fs = std::filesystem;

// The parameters of RoPE as old and new versions of transformers read them.
Json rope_scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::none:
      return nullptr;
    case RopeScaling::linear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_frequency},
              {"high_freq_factor", scaling.high_frequency},
              {"original_max_position_embeddings", scaling.old_sequence}};
  }
  fail("this scaling of positions cannot be saved");
}

// What only Mixtral and Qwen3-MoE have.
void add_experts(Json& json, const Config& config) {
  if (config.experts == 0) return;
  json["num_experts_per_tok"] = config.experts_per_token;
  json["router_aux_loss_coef"] = config.balance;
  json["output_router_logits"] = false;
  json["sliding_window"] = nullptr;
  if (config.qk_norm) {
    json["num_experts"] = config.experts;
    json["moe_intermediate_size"] = config.d_ff;
    json["norm_topk_prob"] = true;  // the weights of the chosen experts add up to 1
    json["decoder_sparse_step"] = 1;
    json["mlp_only_layers"] = Json::array();
  } else {
    json["num_local_experts"] = config.experts;
    json["router_jitter_noise"] = 0.0;
  }
}

// The names of a kind of model in transformers.
struct Family {
  const char *model_type, *architecture;
  bool qk_norm, has_experts;
};
constexpr Family families[] = {{"llama", "LlamaForCausalLM", false, false},
                               {"mixtral", "MixtralForCausalLM", false, true},
                               {"qwen3", "Qwen3ForCausalLM", true, false},
                               {"qwen3_moe", "Qwen3MoeForCausalLM", true, true}};

const Family& family_of(const Config& config) {
  return *std::find_if(std::begin(families), std::end(families), [&](const Family& each) {
    return each.qk_norm == config.qk_norm && each.has_experts == (config.experts > 0);
  });
}

Json config_json(const Config& config, DType dtype) {
  const Family& family = family_of(config);
  Json json = {{"architectures", {family.architecture}},
               {"model_type", family.model_type},
               {"vocab_size", config.vocabulary},
               {"hidden_size", config.d_model},
               {"intermediate_size", config.d_ff},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.kv_heads},
               {"head_dim", config.head_size()},
               {"max_position_embeddings", config.sequence},
               {"hidden_act", "silu"},
               {"rms_norm_eps", config.norm_epsilon},
               {"rope_theta", config.rope_theta},
               {"rope_scaling", rope_scaling_json(config.rope_scaling)},
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
  add_experts(json, config);
  return json;
}

Json read_json(const fs::path& path) {
  const auto text = read_if_possible(path);
  require(text.has_value(), "cannot read {}: is its folder a checkpoint?", path.string());
  return parse_strictly(*text, path.string(), 16);
}

// Keys that load_config() reads or checks, and those that the parameters of RoPE may have.
constexpr const char* read_here = R"(
    model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads max_position_embeddings head_dim hidden_act rms_norm_eps rope_theta
    rope_scaling rope_parameters partial_rotary_factor tie_word_embeddings attention_bias mlp_bias
    attention_dropout num_local_experts num_experts_per_tok router_aux_loss_coef
    router_jitter_noise sliding_window num_experts moe_intermediate_size norm_topk_prob
    decoder_sparse_step mlp_only_layers use_sliding_window layer_types rope_interleaved)";
constexpr const char* read_of_rope = R"(
    rope_type type rope_theta factor low_freq_factor high_freq_factor
    original_max_position_embeddings partial_rotary_factor)";

bool is_among(const std::string& key, const std::string& list) {
  std::istringstream words(list);
  return std::find(std::istream_iterator<std::string>(words), {}, key) !=
         std::istream_iterator<std::string>();
}

// A key that Ringside does not know may change the numbers of the model, so it is an error, unless
// it has no value.
void refuse_unknown_keys(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    require(value.is_null() || changes_nothing(key) || is_among(key, read_here),
            "it has the key {} = {}, which Ringside does not know: if it does not change the "
            "numbers of the model, remove it from the file",
            shown(Json(key)), shown(value));
  }
}

bool truth(const Json& json, const char* key) {
  const Json value = json.value(key, Json(false));
  require(value.is_boolean(), "its {} is {}, not true or false", key, shown(value));
  return value.get<bool>();
}

void require_full_rotation(const Json& json) {
  const Json rotary = json.value("partial_rotary_factor", Json());
  require(rotary.is_null() || rotary == 1,
          "it rotates only a part of each head (partial_rotary_factor {}), but Ringside's model "
          "rotates all",
          shown(rotary));
}

// What a Qwen3 may have that Ringside's model has not: a window over the tokens, blocks without
// experts among those with experts, and weights of experts that do not add up to 1.
void refuse_other_qwens(const Json& json, bool has_experts) {
  require(!truth(json, "use_sliding_window"),
          "its attention has a window (use_sliding_window), but that of Ringside's model sees all");
  for (const Json& kind : json.value("layer_types", Json::array()))
    require(kind == "full_attention",
            "it has blocks of type {} (layer_types), but Ringside's model has full_attention alone",
            shown(kind));
  if (!has_experts) return;
  const Json step = json.value("decoder_sparse_step", Json(1)),
             dense = json.value("mlp_only_layers", Json());
  require(step == 1 && (dense.is_null() || dense.empty()),
          "it has blocks without experts (decoder_sparse_step {}, mlp_only_layers {}), but in "
          "Ringside's model all blocks have them",
          shown(step), shown(dense));
  require(truth(json, "norm_topk_prob"),
          "the weights of a token's experts do not add up to 1 (norm_topk_prob false), but in "
          "Ringside's model they do");
}

// Throws Error if the config asks for something that Ringside's model does not have.
void refuse_other_models(const Json& json) {
  const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
  const auto* const family =
      std::find_if(std::begin(families), std::end(families),
                   [&](const Family& each) { return type == each.model_type; });
  require(family != std::end(families),
          "it does not describe a Llama model (model_type \"llama\"), a Mixtral (\"mixtral\"), a "
          "Qwen3 (\"qwen3\") or a Qwen3-MoE (\"qwen3_moe\")");
  const Json activation = json.value("hidden_act", Json("silu"));
  require(activation == "silu", "its activation (hidden_act) is {}, but Ringside's is silu",
          shown(activation));
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    require(!truth(json, bias), "it asks for biases ({}), but Ringside's model has none", bias);
  }
  const Json dropout = json.value("attention_dropout", Json());
  require(dropout.is_null() || dropout == 0,
          "it asks for dropout (attention_dropout {}), but Ringside's model has none",
          shown(dropout));
  const Json noise = json.value("router_jitter_noise", Json()),
             window = json.value("sliding_window", Json());
  require(
      noise.is_null() || noise == 0,
      "it multiplies the router's input by noise (router_jitter_noise {}), but Ringside's model "
      "does not",
      shown(noise));
  require(window.is_null() || family->qk_norm,  // that of a Qwen3 has a switch of its own
          "its attention sees {} tokens back (sliding_window), but that of Ringside's model sees "
          "all",
          shown(window));
  require_full_rotation(json);
  require(
      !truth(json, "rope_interleaved"),
      "it rotates neighbouring numbers of a head (rope_interleaved), but Ringside's model those "
      "of both halves");
  if (family->qk_norm) refuse_other_qwens(json, family->has_experts);
  refuse_unknown_keys(json);
}

std::int64_t integer(const Json& json, const char* key) {
  const Json value = json.value(key, Json());
  require(!value.is_null(), "it has no {}", key);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{1} << 62);
  require(fits, "its {} is {}, not an integer", key, shown(value));
  return value.get<std::int64_t>();
}

// What an absent key stands for in this family.
template <class Number>
Number by_default(const Json& json, const char* key, const char* member) {
  const Json value = default_of(json["model_type"], member);
  require(!value.is_null(), "it has no {}, and no default of it is known", key);
  return value.get<Number>();
}

std::int64_t integer(const Json& json, const char* key, const char* member) {
  return json.contains(key) ? integer(json, key) : by_default<std::int64_t>(json, key, member);
}

// Null stands for the size that follows from others. So does the default, where it is a formula.
std::int64_t integer_or_null(const Json& json, const char* key, const char* member,
                             std::int64_t if_null) {
  const bool follows = !json.contains(key) && default_of(json["model_type"], member).is_string();
  if (follows || json.value(key, Json(0)).is_null()) return if_null;
  return integer(json, key, member);
}

double number(const Json& json, const char* key) {
  const Json value = json.at(key);
  require(value.is_number(), "its {} is {}, not a number", key, shown(value));
  return value.get<double>();
}

double number(const Json& json, const char* key, const char* member) {
  return json.contains(key) ? number(json, key) : by_default<double>(json, key, member);
}

// Old versions of transformers keep the base in rope_theta and the rest in rope_scaling; new ones
// keep all in rope_parameters. Where both are there, transformers takes rope_scaling. The type was
// first called "type".
void read_rope(const Json& json, Config& config) {
  const Json old = json.value("rope_scaling", Json());
  const char* const place = old.is_null() || old.empty() ? "rope_parameters" : "rope_scaling";
  const Json rope = json.value(place, Json());
  config.rope_theta = number(json, "rope_theta", "rope_theta");
  if (rope.is_null()) return;
  require(rope.is_object(), "its {} is {}, not an object", place, shown(rope));
  for (const auto& [key, value] : rope.items())
    require(is_among(key, read_of_rope), "its {} has the key {}, which Ringside does not know",
            place, shown(Json(key)));
  require_full_rotation(rope);
  if (rope.contains("rope_theta")) config.rope_theta = number(rope, "rope_theta");
  const Json kind = rope.value("rope_type", rope.value("type", Json("default")));
  RopeScaling& scaling = config.rope_scaling;
  // The base of dynamic scaling grows with a sequence that is longer than max_position_embeddings,
  // and here no sequence is.
  if (kind == "default" || kind == "dynamic") return;
  require(kind == "linear" || kind == "llama3",
          "it scales positions ({} with rope_type {}) in a way that Ringside does not support: it "
          "has default, linear, dynamic and llama3",
          place, shown(kind));
  scaling.kind = kind == "linear" ? RopeScaling::linear : RopeScaling::llama3;
  const auto needed = [&](const char* key) {
    require(!rope.value(key, Json()).is_null(), "its {} has no {}", place, key);
    return number(rope, key);
  };
  scaling.factor = needed("factor");
  if (kind == "linear") return;
  scaling.low_frequency = needed("low_freq_factor");
  scaling.high_frequency = needed("high_freq_factor");
  constexpr const char* old_sequence = "original_max_position_embeddings";
  scaling.old_sequence =
      rope.contains(old_sequence) ? integer(rope, old_sequence) : config.sequence;
}

// The members of Config whose keys have other names.
constexpr std::pair<std::string_view, std::string_view> key_of_member[] = {
    {"vocabulary", "vocab_size"},
    {"d_model", "hidden_size"},
    {"d_ff", "intermediate_size"},
    {"layers", "num_hidden_layers"},
    {"heads", "num_attention_heads"},
    {"kv_heads", "num_key_value_heads"},
    {"sequence", "max_position_embeddings"},
    {"norm_epsilon", "rms_norm_eps"},
    {"experts", "num_local_experts"},
    {"experts_per_token", "num_experts_per_tok"},
    {"balance", "router_aux_loss_coef"}};

// Whether the sentence has this word, and not only as a part of a longer one.
bool has_word(std::string_view sentence, std::string_view word) {
  const auto ends = [&](std::size_t at) {
    const unsigned char c = at < sentence.size() ? sentence[at] : ' ';
    return c != '_' && std::isalnum(c) == 0;
  };
  for (auto at = sentence.find(word); at < sentence.size(); at = sentence.find(word, at + 1))
    if ((at == 0 || ends(at - 1)) && ends(at + word.size())) return true;
  return false;
}

// validate(), with the keys of the members that its sentence names.
void validate_by_keys(const Config& config) {
  try {
    validate(config);
  } catch (const Error& problem) {
    std::vector<std::string> keys;
    for (const auto& [member, key] : key_of_member)
      if (has_word(problem.what(), member)) keys.push_back(fmt::format("{} is {}", member, key));
    if (keys.empty()) throw;
    fail("{} (in the file, {})", problem.what(), fmt::join(keys, " and "));
  }
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
    config.kv_heads = integer_or_null(json, "num_key_value_heads", "kv_heads", config.heads);
    config.sequence = integer(json, "max_position_embeddings", "sequence");
    config.head_dim = integer_or_null(json, "head_dim", "head_size", 0);
    require(json.value("head_dim", Json()) != 0, "its head_dim is 0: a head is at least 2 wide");
    if (config.heads > 0 && config.d_model % config.heads == 0 &&
        config.head_dim == config.d_model / config.heads)
      config.head_dim = 0;  // as by default
    config.norm_epsilon = number(json, "rms_norm_eps", "norm_epsilon");
    const std::string type = json["model_type"];
    config.qk_norm = type.starts_with("qwen3");
    if (type == "mixtral" || type == "qwen3_moe") {
      // transformers 5 writes the name of Mixtral for a Qwen3-MoE, too.
      const char* const count = json.contains("num_experts") ? "num_experts" : "num_local_experts";
      config.experts = integer(json, count);
      require(config.experts >= 1, "its {} is {}: a model with experts has at least 1", count,
              config.experts);
      if (config.qk_norm) config.d_ff = integer(json, "moe_intermediate_size");
      config.experts_per_token = integer(json, "num_experts_per_tok", "experts.per_token");
      config.balance = number(json, "router_aux_loss_coef", "balance");
    }
    read_rope(json, config);
    config.tied_head = truth(json, "tie_word_embeddings");
    validate_by_keys(config);
    return config;
  } catch (const Error& problem) {
    fail("{} cannot be used: {}", path.string(), problem.what());
  }
}

void save_config(const fs::path& directory, const Config& config, DType dtype) {
  AtomicFile file(directory / "config.json");
  file.write(config_json(config, dtype).dump(2) + "\n");
  file.commit();
}

std::string config_text(const Config& config, DType dtype) {
  return config_json(config, dtype).dump();
}

std::vector<std::string> changes_of_config(const fs::path& directory, const std::string& saved) {
  const Json now = read_json(directory / "config.json");
  const Json then = parse_strictly(saved, "the saved configuration", 8);
  std::vector<std::string> changes;
  const auto text = [](const Json* value) { return value ? shown(*value) : "not there"; };
  std::set<std::string> keys;
  for (const Json* json : {&now, &then})
    for (const auto& [key, ignored] : json->items()) keys.insert(key);
  for (const std::string& key : keys) {
    const Json *const value = now.find(key), *const saved_value = then.find(key);
    if (value == nullptr || saved_value == nullptr || *value != *saved_value)
      changes.push_back(
          fmt::format("{} is {} and was {}", shown(key), text(value), text(saved_value)));
  }
  return changes;
}

}  // namespace ringside::transformer

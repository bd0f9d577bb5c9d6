#include "planning/model.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "planning/data/embedded.hpp"
#include "planning/json_fields.hpp"

namespace ringside::planning {
namespace {

namespace fs = std::filesystem;

void read_llama(JsonFields& fields, Model& model) {
  model.vocabulary = fields.count("vocab_size");
  model.d_model = fields.count("hidden_size");
  model.d_ff = fields.count("intermediate_size");
  model.layers = fields.count("num_hidden_layers");
  model.heads = fields.count("num_attention_heads");
  model.kv_heads = fields.count("num_key_value_heads", model.heads);
  model.head_size =
      fields.count("head_dim", std::max<std::int64_t>(model.d_model / model.heads, 1));
  model.sequence = fields.count("max_position_embeddings", 2048);
  model.tied_head = fields.flag("tie_word_embeddings", false);
  model.attention_bias = fields.flag("attention_bias", false);
  model.mlp_bias = fields.flag("mlp_bias", false);
}

void read_mixtral(JsonFields& fields, Model& model) {
  read_llama(fields, model);
  model.experts = Experts{.routed = fields.count("num_local_experts"),
                          .per_token = fields.count("num_experts_per_tok"),
                          .d_ff = model.d_ff};
}

void read_qwen3(JsonFields& fields, Model& model, bool has_experts) {
  read_llama(fields, model);
  model.qk_norm = true;
  if (!has_experts) return;
  model.d_ff = fields.count("moe_intermediate_size");
  const bool is_old = fields.has("num_experts");  // transformers 5 writes Mixtral's name
  model.experts = Experts{.routed = fields.count(is_old ? "num_experts" : "num_local_experts"),
                          .per_token = fields.count("num_experts_per_tok"),
                          .d_ff = model.d_ff};
}

void read_deepseek(JsonFields& fields, Model& model) {
  read_llama(fields, model);
  model.latent = LatentAttention{.q_rank = fields.count("q_lora_rank"),
                                 .kv_rank = fields.count("kv_lora_rank"),
                                 .nope = fields.count("qk_nope_head_dim"),
                                 .rope = fields.count("qk_rope_head_dim"),
                                 .value = fields.count("v_head_dim")};
  model.experts = Experts{.routed = fields.count("n_routed_experts"),
                          .shared = fields.count("n_shared_experts"),
                          .per_token = fields.count("num_experts_per_tok"),
                          .d_ff = fields.count("moe_intermediate_size"),
                          .dense_blocks = fields.count("first_k_dense_replace")};
}

void read_gpt(JsonFields& fields, Model& model) {
  model.vocabulary = fields.count("vocab_size");
  model.d_model = fields.count("n_embd");
  model.d_ff = fields.count("n_inner", 4 * model.d_model);
  model.layers = fields.count("n_layer");
  model.heads = model.kv_heads = fields.count("n_head");
  model.head_size = std::max<std::int64_t>(model.d_model / model.heads, 1);
  model.sequence = fields.count("n_positions");
  model.tied_head = true;
  const std::string attention = fields.text("attn_implementation", "eager");
  model.fused_attention = attention != "eager";
}

void read_feed_forward(JsonFields& fields, Model& model) {
  model.d_model = fields.count("hidden_size");
  model.d_ff = fields.count("intermediate_size");
  model.layers = fields.count("num_hidden_layers");
  model.sequence = fields.count("max_position_embeddings", 1024);
}

// Ignores keys that say nothing about sizes, because a config.json has many.
Model read_model(const Json& json, const std::string& name, const std::string& place) {
  JsonFields fields(json, place);
  const std::string type = fields.text("model_type");
  Model model;
  model.name = name, model.source = fields.text("source", name);
  if (type == "llama" || type == "mistral") {
    model.kind = Model::Kind::llama;
    read_llama(fields, model);
  } else if (type == "mixtral") {
    model.kind = Model::Kind::llama;
    read_mixtral(fields, model);
  } else if (type == "qwen3" || type == "qwen3_moe") {
    model.kind = Model::Kind::llama;
    read_qwen3(fields, model, type == "qwen3_moe");
  } else if (type == "gpt2") {
    model.kind = Model::Kind::gpt;
    read_gpt(fields, model);
  } else if (type == "feed_forward") {
    model.kind = Model::Kind::feed_forward;
    read_feed_forward(fields, model);
  } else if (type == "deepseek_v3") {
    model.kind = Model::Kind::deepseek;
    read_deepseek(fields, model);
  } else if (type == "parameters") {
    model.kind = Model::Kind::parameters;
    model.parameters = static_cast<std::int64_t>(fields.number("parameters", range::positive));
  } else {
    fail(
        "{}model_type is \"{}\", but llama, mistral, mixtral, qwen3, qwen3_moe, gpt2, deepseek_v3 "
        "or feed_forward is expected",
        place, type);
  }
  require(model.heads == 0 || model.heads % model.kv_heads == 0,
          "{}{} heads cannot share {} key and value heads evenly", place, model.heads,
          model.kv_heads);
  const bool divides = model.heads == 0 || fields.has("head_dim") || model.latent ||
                       model.d_model % model.heads == 0;
  require(divides, "{}the width {} does not divide into {} heads", place, model.d_model,
          model.heads);
  return model;
}

// The table of this program, in the order of the file.
const Json& table() {
  static const auto parsed = Json::parse(embedded_models());
  return parsed;
}

}  // namespace

Model model_from(const transformer::Config& config, const std::string& name) {
  Model model;
  model.name = name, model.source = "transformer/config.cpp", model.own = config;
  model.vocabulary = config.vocabulary, model.d_model = config.d_model;
  model.layers = config.layers, model.heads = config.heads, model.kv_heads = config.kv_heads;
  model.head_size = config.head_size(), model.d_ff = config.d_ff;
  model.sequence = config.sequence, model.tied_head = config.tied_head;
  model.qk_norm = config.qk_norm;
  if (config.experts > 0)
    model.experts = Experts{
        .routed = config.experts, .per_token = config.experts_per_token, .d_ff = config.d_ff};
  return model;
}

Model on_mesh(Model model, const parallel::MeshShape& mesh) {
  if (model.experts) model.experts->ranks = mesh.size(parallel::Axis::ep);
  return model;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : table().items()) names.push_back(name);
  return names;
}

Model find_model(const std::string& name) {
  const auto own = transformer::config_names();
  if (std::find(own.begin(), own.end(), name) != own.end())
    return model_from(transformer::named_config(name), name);
  if (table().contains(name))
    return read_model(table().at(name), name, "models.json: " + name + ".");
  const fs::path path = fs::is_directory(name) ? fs::path(name) / "config.json" : fs::path(name);
  auto names = model_names();
  names.insert(names.end(), own.begin(), own.end());
  require(fs::exists(path),
          "there is no model or file named '{}'{}; sizes of Ringside: {}; published models: {}; "
          "or give the path of a config.json",
          name, did_you_mean(name, names), fmt::join(own, ", "), fmt::join(model_names(), ", "));
  return read_model(read_json_file(path), path.string(), path.string() + ": ");
}

}  // namespace ringside::planning

// Unusual and damaged checkpoints, one change at a time: each is read as transformers reads it, or
// refused by a sentence that names the key of config.json, or the array.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/text.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::Tensor;
using tests::contains;
using tests::tiny_config;

namespace {

// What the reader makes of a config.json: its configuration as text, or why it is refused.
std::string reading_of(const Json& json) {
  const TemporaryDirectory directory;
  directory.write("config.json", json.dump());
  try {
    const Config c = load_config(directory.path());
    return fmt::format("{} {} {} {} {} {} {} head {} rope {} eps {} {}", c.vocabulary, c.d_model,
                       c.d_ff, c.layers, c.heads, c.kv_heads, c.sequence, c.head_size(),
                       c.rope_theta, c.norm_epsilon, c.tied_head ? "tied" : "untied");
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("an unusual value of any key of config.json is read as transformers does or refused") {
  const TemporaryDirectory directory;
  save_config(directory.path(), tiny_config(), autograd::DType::fp32);
  const Json good = Json::parse(read_file(directory.path() / "config.json"));
  const char* const keys[] = {"model_type",
                              "vocab_size",
                              "hidden_size",
                              "intermediate_size",
                              "num_hidden_layers",
                              "num_attention_heads",
                              "num_key_value_heads",
                              "max_position_embeddings",
                              "hidden_act",
                              "rms_norm_eps",
                              "rope_theta",
                              "rope_scaling",
                              "rope_parameters",
                              "tie_word_embeddings",
                              "attention_bias",
                              "mlp_bias",
                              "head_dim",
                              "attention_dropout",
                              "partial_rotary_factor",
                              "sliding_window"};
  const char* const values[] = {"null", "true", "false", "\"text\"", "\"\"", "0",  "-1",
                                "3",    "2.5",  "1e300", "[]",       "[1]",  "{}", "{\"a\":1}"};
  std::vector<std::string> read;
  for (const char* key : keys)
    for (const char* value : values) {
      Json changed = good;
      changed[key] = Json::parse(value);
      const std::string seen = reading_of(changed);
      CAPTURE(key);
      CAPTURE(value);
      CAPTURE(seen);
      if (contains(seen, "cannot be used: "))
        CHECK(contains(seen, key));
      else
        read.push_back(
            fmt::format("{} = {}: {}", key, value, seen == reading_of(good) ? "unchanged" : seen));
    }
  // Twelve of these were also read by transformers 5.23, which takes them for the same model.
  CHECK(read == std::vector<std::string>{
                    "vocab_size = 3: 3 8 6 2 4 2 10 head 2 rope 500 eps 0.0001 untied",
                    "hidden_size = 3: 17 3 6 2 4 2 10 head 2 rope 500 eps 0.0001 untied",
                    "intermediate_size = 3: 17 8 3 2 4 2 10 head 2 rope 500 eps 0.0001 untied",
                    "num_hidden_layers = 3: 17 8 6 3 4 2 10 head 2 rope 500 eps 0.0001 untied",
                    "num_key_value_heads = null: 17 8 6 2 4 4 10 head 2 rope 500 eps 0.0001 untied",
                    "max_position_embeddings = 3: 17 8 6 2 4 2 3 head 2 rope 500 eps 0.0001 untied",
                    "rms_norm_eps = 3: 17 8 6 2 4 2 10 head 2 rope 500 eps 3 untied",
                    "rms_norm_eps = 2.5: 17 8 6 2 4 2 10 head 2 rope 500 eps 2.5 untied",
                    "rms_norm_eps = 1e300: 17 8 6 2 4 2 10 head 2 rope 500 eps 1e+300 untied",
                    "rope_theta = 3: 17 8 6 2 4 2 10 head 2 rope 3 eps 0.0001 untied",
                    "rope_theta = 2.5: 17 8 6 2 4 2 10 head 2 rope 2.5 eps 0.0001 untied",
                    "rope_theta = 1e300: 17 8 6 2 4 2 10 head 2 rope 1e+300 eps 0.0001 untied",
                    "rope_scaling = null: unchanged",
                    "rope_scaling = []: unchanged",
                    "rope_scaling = {}: unchanged",
                    "rope_parameters = null: unchanged",
                    "rope_parameters = {}: unchanged",
                    "tie_word_embeddings = true: 17 8 6 2 4 2 10 head 2 rope 500 eps 0.0001 tied",
                    "tie_word_embeddings = false: unchanged",
                    "attention_bias = false: unchanged",
                    "mlp_bias = false: unchanged",
                    "head_dim = null: unchanged",
                    "attention_dropout = null: unchanged",
                    "attention_dropout = 0: unchanged",
                    "partial_rotary_factor = null: unchanged",
                    "sliding_window = null: unchanged"});
}

namespace {

// A checkpoint with one array changed by `change`.
std::string refusal_of(const std::function<void(std::vector<ArrayView>&)>& change) {
  const TemporaryDirectory directory;
  const Model model(tiny_config());
  save_config(directory.path(), tiny_config(), autograd::DType::fp32);
  std::vector<ArrayView> arrays;
  for (const auto& [name, tensor] : model.named_parameters())
    arrays.push_back(view_of(name, tensor));
  change(arrays);
  write_safetensors(directory.path() / "model.safetensors", arrays);
  try {
    load_parameters(directory.path(), Model(load_config(directory.path())));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("an array that is missing or strange or not finite is refused by name") {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : Model(tiny_config()).named_parameters()) names.push_back(name);
  CHECK(refusal_of([](auto&) {}) == "accepted");
  const std::vector<float> numbers(1000, std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    const std::string quoted = "'" + names[i] + "'";
    const auto with = [&](const std::function<void(ArrayView&)>& change) {
      return refusal_of([&](auto& arrays) { change(arrays[i]); });
    };
    const std::string missing =
        refusal_of([&](auto& arrays) { arrays.erase(arrays.begin() + static_cast<long>(i)); });
    CHECK(contains(missing, "holds no array named " + quoted));
    CHECK(contains(with([](ArrayView& a) { a.name = "other"; }), "holds 'other', which is not"));
    CHECK(contains(with([](ArrayView& a) { a.shape.push_back(1); }), quoted + " has shape ["));
    CHECK(contains(with([](ArrayView& a) { a.type = StoredType::i32; }),
                   quoted + " is stored as I32, but Ringside reads parameters from F32"));
    CHECK(contains(with([&](ArrayView& a) {
                     a.bytes = std::as_bytes(std::span(numbers)).first(a.bytes.size());
                   }),
                   quoted + " has values that are infinite or not a number"));
  }
}

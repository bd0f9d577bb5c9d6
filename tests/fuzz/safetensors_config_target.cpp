// Fuzzes the reader of config.json.
#include "tests/fuzz/target.hpp"

#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  static const TemporaryDirectory directory;
  directory.write("config.json", input);
  return accepts([] { transformer::validate(transformer::load_config(directory.path())); });
}

std::vector<std::string> good_inputs() {
  return {
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":29,)"
      R"("hidden_size":16,"intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"max_position_embeddings":12,"hidden_act":"silu",)"
      R"("rms_norm_eps":3e-05,"rope_theta":700.0,"tie_word_embeddings":false,)"
      R"("attention_bias":false,"rope_scaling":null})",
      R"({"model_type":"llama","vocab_size":29,"hidden_size":16,"intermediate_size":20,)"
      R"("num_hidden_layers":2,"num_attention_heads":4,"head_dim":4,"mlp_bias":false,)"
      R"("rope_parameters":{"rope_theta":700.0,"rope_type":"default"}})"};
}

std::vector<std::string> words() {
  return {"\"llama\"",
          "\"silu\"",
          "\"gelu\"",
          "true",
          "false",
          "null",
          "0",
          "-1",
          "1e999",
          "1e-400",
          "9223372036854775807",
          "18446744073709551616",
          "1000000000",
          "1000000001",
          "[]",
          "{}",
          "\"\"",
          "\"rope_parameters\":",
          "\"rope_scaling\":",
          "\"head_dim\":",
          ",",
          "\\ud800",
          "\xff",
          "[[[[[[[[",
          "{\"a\":",
          "0.5",
          "7"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz

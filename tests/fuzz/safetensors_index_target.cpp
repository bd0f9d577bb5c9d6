// Fuzzes the reader of a sharded checkpoint's index. Whatever the index contains, the reader must
// return only names of files in the same folder.
#include "tests/fuzz/target.hpp"

#include <filesystem>
#include <stdexcept>

#include "transformer/checkpoint/model_files.hpp"

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  std::map<std::string, std::string> file_of;
  if (!accepts([&] { file_of = transformer::parse_shard_index(input); })) return false;
  if (file_of.empty()) throw std::logic_error("an empty index was accepted");
  const std::filesystem::path folder = "/folder";
  for (const auto& [name, file] : file_of) {
    const auto path = (folder / file).lexically_normal();
    if (path.parent_path() != folder || path.filename() != file ||
        path.extension() != ".safetensors" || file.find('\0') != std::string::npos)
      throw std::logic_error("a file outside of the folder was accepted: " + file);
  }
  return true;
}

std::vector<std::string> good_inputs() {
  return {R"({"metadata":{"total_size":26936},"weight_map":{)"
          R"("model.embed_tokens.weight":"model-00001-of-00002.safetensors",)"
          R"("model.layers.0.mlp.up_proj.weight":"model-00001-of-00002.safetensors",)"
          R"("model.norm.weight":"model-00002-of-00002.safetensors"}})",
          R"({"weight_map":{"a":"a.safetensors"}})"};
}

std::vector<std::string> words() {
  return {"\"../a.safetensors\"",
          "\"/a.safetensors\"",
          "/",
          "..",
          "../",
          "\\u0000",
          "\\u002f",
          "\\\\",
          "\"weight_map\":",
          "\"a\":",
          "{}",
          "[]",
          "null",
          "{",
          "}",
          ",",
          "\"\"",
          "1e999",
          "[[[[[[[[[[",
          "{\"a\":",
          "\\ud800",
          "\xff",
          ".safetensors",
          "\"a.safetensors\""};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz

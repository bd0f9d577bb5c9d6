// The files with a checkpoint's parameters: one, or, where Hugging Face's libraries found that too
// large, several and an index.
//
//     DIR/model.safetensors
//
//     DIR/model.safetensors.index.json            {"metadata": {"total_size": 26936}, "weight_map": {
//     DIR/model-00001-of-00002.safetensors             "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
//     DIR/model-00002-of-00002.safetensors             "model.norm.weight": "model-00002-of-00002.safetensors", ...}}
//
// The index comes from outside as the files do: it may name what is not there, and paths that lead
// out of the folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "transformer/checkpoint/safetensors.hpp"

namespace ringside::transformer {

// What an index says: by array, the file that holds it, a plain name of a file beside the index.
// Throws Error with a sentence if it says anything else, or nothing, or names an array twice.
std::map<std::string, std::string> parse_shard_index(const std::string& json);

class ModelFiles {
 public:
  // Opens model.safetensors, or else what the index names, and reads all headers. Throws Error with
  // the path and what is wrong: nothing there, a file that is missing or damaged, an index that the
  // files contradict.
  explicit ModelFiles(const std::filesystem::path& directory);

  std::vector<std::string> names() const;  // of all arrays

  // The file that holds an array. Throws Error if none does.
  SafetensorsFile& holding(const std::string& name);

 private:
  void open_shards(const std::filesystem::path& directory);

  std::filesystem::path list_;  // the file that says what there is: the only one, or the index
  std::map<std::string, SafetensorsFile> files_;  // by name
  std::map<std::string, SafetensorsFile*> of_array_;
};

}  // namespace ringside::transformer

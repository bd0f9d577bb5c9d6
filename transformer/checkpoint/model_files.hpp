// ModelFiles: the files that contain a checkpoint's parameters. A large model of Hugging Face's
// libraries has several shards and an index.
//
//     DIR/model.safetensors                       either this
//
//     DIR/model.safetensors.index.json            or these
//     DIR/model-00001-of-00002.safetensors
//     DIR/model-00002-of-00002.safetensors
//
// The index:
//
//     {"metadata": {"total_size": 26936},
//      "weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors",
//                     "model.norm.weight": "model-00002-of-00002.safetensors", ...}}
//
// The index is untrusted input: it may name missing files, or paths outside the directory.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "transformer/checkpoint/safetensors.hpp"

namespace ringside::transformer {

// Parses an index: for each array, the name of the file that contains it. Throws Error with one
// sentence if it is not a valid index, names no array, repeats one, or names a file in another
// directory.
std::map<std::string, std::string> parse_shard_index(const std::string& json);

class ModelFiles {
 public:
  // Opens model.safetensors, or else the files that the index names, and reads all headers. Throws
  // Error with the path and the reason: a missing or damaged file, or an index that does not match
  // the files.
  explicit ModelFiles(const std::filesystem::path& directory);

  std::vector<std::string> names() const;  // of all arrays

  // The file that contains the array. Throws Error if none does.
  SafetensorsFile& holding(const std::string& name);

 private:
  void open_shards(const std::filesystem::path& directory);

  std::filesystem::path list_;                    // the only file, or the index
  std::map<std::string, SafetensorsFile> files_;  // by file name
  std::map<std::string, SafetensorsFile*> of_array_;
};

}  // namespace ringside::transformer

#include "transformer/checkpoint/model_files.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "transformer/checkpoint/strict_json.hpp"

namespace ringside::transformer {

namespace fs = std::filesystem;

namespace {

// Whether `name` is a file in the same directory. The file may be a symbolic link, as in Hugging
// Face's cache.
bool is_plain_file_name(const std::string& name) {
  return name.find_first_of(std::string("/\\\0", 3)) == std::string::npos &&
         name.ends_with(".safetensors") && !name.starts_with(".");
}

}  // namespace

std::map<std::string, std::string> parse_shard_index(const std::string& json) {
  const Json index = parse_strictly(json, "it", 8);
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          "it has no weight_map from array names to files");
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : index["weight_map"].items()) {
    require(file.is_string() && is_plain_file_name(file.get<std::string>()),
            "it says that {} is in {}, which is not a safetensors file in the same directory",
            shown(name), shown(file));
    file_of.emplace(name, file.get<std::string>());
  }
  require(!file_of.empty(), "its weight_map names no array");
  return file_of;
}

ModelFiles::ModelFiles(const fs::path& directory) : list_(directory / "model.safetensors") {
  std::error_code ignored;
  const fs::path index = directory / "model.safetensors.index.json";
  if (!fs::exists(list_, ignored) && fs::exists(index, ignored)) {
    list_ = index;
    open_shards(directory);
    return;
  }
  SafetensorsFile& file = files_.try_emplace(list_.filename().string(), list_).first->second;
  for (const auto& [name, entry] : file.entries()) of_array_[name] = &file;
}

// Every array must be in exactly the file that the index names. Otherwise something was lost, or
// files come from different checkpoints.
void ModelFiles::open_shards(const fs::path& directory) {
  try {
    const auto file_of = parse_shard_index(read_file(list_));
    for (const auto& [name, file] : file_of) {
      std::error_code ignored;
      require(fs::exists(directory / file, ignored),
              "it says that {} is in {}, which does not exist", shown(name), file);
      of_array_[name] = &files_.try_emplace(file, directory / file).first->second;
    }
    for (const auto& [name, file] : file_of)
      require(files_.at(file).entries().contains(name),
              "it says that {} is in {}, which does not contain it", shown(name), file);
    for (const auto& [file, opened] : files_) {
      for (const auto& [name, entry] : opened.entries()) {
        const auto named = file_of.find(name);
        require(named != file_of.end(), "it does not name {}, which {} contains", shown(name),
                file);
        require(named->second == file, "it says that {} is in {}, but {} contains it too",
                shown(name), named->second, file);
      }
    }
  } catch (const Error& problem) {
    fail("{} cannot be used: {}", list_.string(), problem.what());
  }
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : of_array_) names.push_back(name);
  return names;
}

SafetensorsFile& ModelFiles::holding(const std::string& name) {
  const auto found = of_array_.find(name);
  require(found != of_array_.end(), "{} holds no array named '{}'", list_.string(), name);
  return *found->second;
}

}  // namespace ringside::transformer

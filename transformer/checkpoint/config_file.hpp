// config.json: the configuration of a model, in the format of Hugging Face's transformers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "autograd/tensor/dtype.hpp"
#include "transformer/config.hpp"

namespace ringside::transformer {

// Reads config.json in `directory`. Throws Error with the path and the reason if the file is
// missing, is not JSON, or describes a model that Ringside does not implement: another
// architecture, biases, another activation, an unknown way to scale positions. A key that Ringside
// does not know is refused as well, unless it is known to change no number.
Config load_config(const std::filesystem::path& directory);

// Writes config.json into `directory`, atomically. `dtype` is that of the stored parameters.
void save_config(const std::filesystem::path& directory, const Config& config,
                 autograd::DType dtype);

// The same text on one line, which model.safetensors holds too.
std::string config_text(const Config& config, autograd::DType dtype);

// The keys whose values in config.json are not those of `saved`, a config_text(): "rms_norm_eps is
// 0.1 and was 1e-05". Throws Error if one of the texts is no JSON.
std::vector<std::string> changes_of_config(const std::filesystem::path& directory,
                                           const std::string& saved);

}  // namespace ringside::transformer

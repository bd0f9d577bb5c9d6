#include "transformer/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "transformer/checkpoint/model_files.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::transformer {

using autograd::Device;
using autograd::NamedTensor;
using autograd::Tensor;

namespace fs = std::filesystem;

// In the metadata of model.safetensors: what config.json was saved with.
constexpr const char* config_key = "config";

void save_checkpoint(const fs::path& directory, const Model& model, const Metadata& more,
                     const VisitTensors& visit) {
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "cannot create the directory {}: {}", directory.string(), error.message());
  std::vector<ArrayView> arrays;
  const ParameterTable table(model.config());
  for (const ParameterEntry& entry : table.entries())
    arrays.push_back({entry.name, stored_type(model.dtype()), entry.shape, {}});
  save_config(directory, model.config(), model.dtype());
  Metadata metadata = more;
  metadata["format"] = "pt";  // transformers requires this entry
  metadata[config_key] = config_text(model.config(), model.dtype());
  SafetensorsWriter file(directory / "model.safetensors", arrays, metadata);
  const auto write = [&](const NamedTensor& whole) {
    const Tensor on_cpu = whole.tensor.to(Device::cpu);
    file.write(whole.name, view_of(whole.name, on_cpu).bytes);
  };
  if (visit)
    visit(write);
  else
    for (const NamedTensor& parameter : model.named_parameters()) write(parameter);
  file.commit();
}

namespace {

// A tied head uses the embedding's matrix. Some files store that matrix a second time, as the head.
void require_tied_head(ModelFiles& files) {
  const auto names = files.names();
  if (std::find(names.begin(), names.end(), head_name) == names.end()) return;
  SafetensorsFile &in_embedding = files.holding(embedding_name),
                  &in_head = files.holding(head_name);
  const auto &embedding = in_embedding.entry(embedding_name), &head = in_head.entry(head_name);
  bool same = embedding.type == head.type && embedding.shape == head.shape;
  constexpr std::size_t piece = 1 << 20;
  std::vector<std::byte> a(piece), b(piece);
  for (std::size_t begin = 0; same && begin < head.bytes(); begin += piece) {
    const std::size_t count = std::min(piece, head.bytes() - begin);
    in_embedding.read_part(embedding_name, begin, std::span(a).first(count));
    in_head.read_part(head_name, begin, std::span(b).first(count));
    same = std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin());
  }
  require(same,
          "{} holds a '{}' of its own, but config.json says that the head uses the embedding's "
          "matrix (tie_word_embeddings): set it to false, or remove the array",
          in_head.path().string(), head_name);
}

// What wrappers of PyTorch put into the names of parameters, and the wrapper's attribute that is
// the model without it. "module." is the end of another one, so it is the last.
struct Prefix {
  std::string_view text, wrapper, attribute;
};
constexpr Prefix prefixes[] = {
    {"_fsdp_wrapped_module.", "FullyShardedDataParallel", "module"},
    {"_checkpoint_wrapped_module.", "checkpoint_wrapper", "_checkpoint_wrapped_module"},
    {"_orig_mod.", "torch.compile", "_orig_mod"},
    {"module.", "DistributedDataParallel", "module"}};

// Refuses an array that is no parameter of the model. FSDP wraps blocks inside a model that it has
// wrapped, and a model may have several wrappers.
[[noreturn]] void refuse_array(const SafetensorsFile& file, const std::string& name,
                               const std::set<std::string>& known) {
  const std::string path = file.path().string();
  std::string bare = name, told, without, strip;
  for (const auto& [text, wrapper, attribute] : prefixes) {
    if (bare.find(text) == bare.npos) continue;
    for (auto at = bare.find(text); at != bare.npos; at = bare.find(text))
      bare.erase(at, text.size());
    without = told.empty() ? fmt::format(" (model.{}.save_pretrained)", attribute) : "";
    told += fmt::format("{}'{}' is that of {}", told.empty() ? "" : ", ", text, wrapper);
    strip += fmt::format(".replace('{}', '')", text);
  }
  require(!strip.empty() && known.contains(bare),
          "{} holds '{}', which is not a parameter of this model", path, name);
  fail(
      "{0} holds '{1}': the prefix {2}. Save the model without it{3}, or strip "
      "it: python3 -c \"from safetensors.torch import load_file, save_file; f = '{0}'; "
      "save_file({{k{4}: v for k, v in load_file(f).items()}}, f, {{'format': 'pt'}})\"",
      path, name, told, without, strip);
}

}  // namespace

void load_parameters(const fs::path& directory, const Model& model) {
  ModelFiles files(directory);
  std::set<std::string> known;
  const ParameterTable table(model.config());
  for (const ParameterEntry& entry : table.entries()) known.insert(entry.name);
  if (model.config().tied_head) {
    known.insert(head_name);
    require_tied_head(files);
  }
  for (const std::string& name : files.names()) {
    // Some versions of transformers stored this table of RoPE, which is computed here.
    const bool computed = name.ends_with("rotary_emb.inv_freq");
    if (!computed && !known.contains(name)) refuse_array(files.holding(name), name, known);
  }
  // A rank that holds only a part of the model checks the whole, so that all ranks refuse alike.
  for (const ParameterEntry& entry : table.entries()) files.holding(entry.name);
  for (const auto& [name, tensor] : model.named_parameters()) {
    const ParameterEntry& entry = table.entry(name);
    read_tensor(files.holding(entry.name), entry.name,
                entry.region(model.part().tensor_rank, model.part().tensor_ranks), tensor);
  }
}

std::string changes_of_checkpoint(const fs::path& directory, const std::vector<std::string>& more) {
  std::vector<std::string> changes;
  const auto add = [&](const std::string& file, const std::vector<std::string>& names) {
    constexpr std::size_t most_named = 4;
    const auto named = std::min(names.size(), most_named);
    if (!names.empty())
      changes.push_back(fmt::format("{}: {}{}", file,
                                    fmt::join(names.begin(), names.begin() + named, ", "),
                                    names.size() > named ? ", ..." : ""));
  };
  ModelFiles files(directory);
  std::set<SafetensorsFile*> opened;
  for (const std::string& name : files.names()) opened.insert(&files.holding(name));
  for (SafetensorsFile* file : opened) {
    const std::vector<std::string> in_file = file->changes();
    const auto saved = file->metadata().find(config_key);
    if (saved != file->metadata().end() &&
        std::ranges::find(in_file, std::string("metadata ") + config_key) == in_file.end())
      add("config.json", changes_of_config(directory, saved->second));
    add(file->path().filename().string(), in_file);
  }
  for (const std::string& name : more) add(name, SafetensorsFile(directory / name).changes());
  return fmt::format("{}", fmt::join(changes, "; "));
}

}  // namespace ringside::transformer

#include "transformer/checkpoint/checkpoint.hpp"

#include <bit>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "autograd/tensor/dtype.hpp"
#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "transformer/checkpoint/model_files.hpp"

namespace ringside::transformer {

using autograd::Device;
using autograd::DType;
using autograd::NamedTensor;
using autograd::Tensor;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

StoredType stored_type(DType type) {
  switch (type) {
    case DType::fp32:
      return StoredType::f32;
    case DType::fp64:
      return StoredType::f64;
    case DType::int32:
      return StoredType::i32;
    case DType::bf16:
      return StoredType::bf16;
  }
  fail("tensors of {} cannot be stored", autograd::name_of(type));
}

nlohmann::ordered_json config_json(const Config& config, DType dtype) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", config.vocabulary},
          {"hidden_size", config.d_model},
          {"intermediate_size", config.d_ff},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"max_position_embeddings", config.sequence},
          {"hidden_act", "silu"},
          {"rms_norm_eps", config.norm_epsilon},
          {"rope_theta", config.rope_theta},
          {"tie_word_embeddings", config.tied_head},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"initializer_range", 0.02},
          {"bos_token_id", nullptr},  // bytes have no tokens that begin or end a text
          {"eos_token_id", nullptr},
          {"torch_dtype", dtype == DType::fp64   ? "float64"
                          : dtype == DType::bf16 ? "bfloat16"
                                                 : "float32"},
          {"use_cache", true}};
}

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  require(file.is_open(), "cannot read {}: is it a checkpoint's folder?", path.string());
  try {
    return Json::parse(file);
  } catch (const Json::exception&) {
    fail("{} is not JSON", path.string());
  }
}

// What this model does not do and a config may ask for.
void refuse_other_models(const Json& said) {
  require(said.is_object() && said.value("model_type", Json()) == "llama",
          "it is not of a Llama model (model_type \"llama\")");
  const Json activation = said.value("hidden_act", Json("silu"));
  require(activation == "silu", "its activation is {}, but Ringside's is silu", activation.dump());
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    require(said.value(bias, Json(false)) == false,
            "it asks for biases ({}), but Ringside's model has none", bias);
  }
  require(said.value("rope_scaling", Json()).is_null(),
          "it stretches positions (rope_scaling), which Ringside does not do");
}

std::int64_t whole_number(const Json& said, const char* key) {
  const Json& value = said.at(key);
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{1} << 62);
  require(fits, "its {} is {:.60}, not a whole number", key, value.dump(-1, ' ', true));
  return value.get<std::int64_t>();
}

std::int64_t whole_number(const Json& said, const char* key, std::int64_t otherwise) {
  return said.value(key, Json()).is_null() ? otherwise : whole_number(said, key);
}

// Newer versions of transformers keep the base among "rope_parameters".
double rope_theta_of(const Json& said) {
  const Json parameters = said.value("rope_parameters", Json());
  if (!parameters.is_object()) return said.value("rope_theta", 10000.0);
  const Json kind = parameters.value("rope_type", Json("default"));
  require(kind == "default", "it stretches positions (rope_type {}), which Ringside does not do",
          kind.dump());
  return parameters.value("rope_theta", 10000.0);
}

// One stored number type turned into the tensor's.
template <class Stored, class T>
void convert(std::span<const std::byte> from, std::span<T> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    if constexpr (std::is_same_v<Stored, std::uint16_t>)
      to[i] = std::bit_cast<float>(std::uint32_t{value} << 16);  // BF16
    else
      to[i] = static_cast<T>(value);
  }
}

void load_parameter(SafetensorsFile& file, const std::string& name, const Tensor& parameter) {
  const Tensor tensor = parameter.device() == Device::cpu
                            ? parameter
                            : Tensor::empty(parameter.shape(), parameter.dtype());
  const auto& entry = file.entry(name);
  require(entry.shape == tensor.shape(), "'{}' has shape {} in the checkpoint but {} in the model",
          name, autograd::to_string(entry.shape), autograd::to_string(tensor.shape()));
  std::vector<std::byte> bytes(entry.bytes());
  file.read(name, bytes);
  autograd::dispatch_stored(tensor.dtype(), "load_parameters", [&](auto zero) {
    const auto values = tensor.values<decltype(zero)>();
    if (entry.type == StoredType::f32) return convert<float>(bytes, values);
    if (entry.type == StoredType::f64) return convert<double>(bytes, values);
    if (entry.type == StoredType::bf16) return convert<std::uint16_t>(bytes, values);
    fail("'{}' is stored as {}, but Ringside reads parameters from F32, F64 and BF16", name,
         safetensors_name(entry.type));
  });
  if (!tensor.is_same(parameter)) parameter.copy_(tensor);
}

}  // namespace

ArrayView view_of(std::string name, const Tensor& tensor) {
  require(tensor.is_contiguous(),
          "the tensor '{}' is not contiguous and cannot be written as it lies", name);
  require(tensor.device() == Device::cpu,
          "the tensor '{}' lies on {} and cannot be written from there; take it home first", name,
          name_of(tensor.device()));
  const std::byte* start = tensor.address();
  const std::size_t bytes =
      static_cast<std::size_t>(tensor.elements()) * autograd::size_of(tensor.dtype());
  return {std::move(name), stored_type(tensor.dtype()), tensor.shape(), {start, bytes}};
}

void save_checkpoint(const fs::path& directory, const Model& model, const Metadata& more,
                     const VisitTensors& visit) {
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "cannot make the folder {}: {}", directory.string(), error.message());
  std::vector<ArrayView> arrays;
  for (const auto& [name, tensor] : model.named_parameters())
    arrays.push_back({name, stored_type(tensor.dtype()), tensor.shape(), {}});
  AtomicFile config(directory / "config.json");
  config.write(config_json(model.config(), model.dtype()).dump(2) + "\n");
  config.commit();
  Metadata metadata = more;
  metadata["format"] = "pt";  // transformers asks for this word
  SafetensorsWriter file(directory / "model.safetensors", arrays, metadata);
  const auto write = [&](const NamedTensor& whole) {
    const Tensor home = whole.tensor.to(Device::cpu);
    file.write(whole.name, view_of(whole.name, home).bytes);
  };
  if (visit)
    visit(write);
  else
    for (const NamedTensor& parameter : model.named_parameters()) write(parameter);
  file.commit();
}

Config load_config(const fs::path& directory) {
  const fs::path path = directory / "config.json";
  const Json said = read_json(path);
  try {
    refuse_other_models(said);
    Config config;
    config.vocabulary = whole_number(said, "vocab_size");
    config.d_model = whole_number(said, "hidden_size");
    config.d_ff = whole_number(said, "intermediate_size");
    config.layers = whole_number(said, "num_hidden_layers");
    config.heads = whole_number(said, "num_attention_heads");
    config.kv_heads = whole_number(said, "num_key_value_heads", config.heads);
    config.sequence = whole_number(said, "max_position_embeddings", 2048);
    config.norm_epsilon = said.value("rms_norm_eps", 1e-6);
    config.rope_theta = rope_theta_of(said);
    config.tied_head = said.value("tie_word_embeddings", false);
    validate(config);
    const Json head_size = said.value("head_dim", Json());
    require(head_size.is_null() || head_size == config.head_size(),
            "its heads are {} wide, but Ringside's are d_model / heads = {}", head_size.dump(),
            config.head_size());
    return config;
  } catch (const Json::exception& exception) {
    fail("{} does not describe a Llama model: {}", path.string(), exception.what());
  } catch (const Error& problem) {
    fail("{} cannot be used: {}", path.string(), problem.what());
  }
}

void load_parameters(const fs::path& directory, const Model& model) {
  ModelFiles files(directory);
  std::set<std::string> known;
  for (const NamedTensor& parameter : model.named_parameters(true)) known.insert(parameter.name);
  for (const std::string& name : files.names()) {
    const bool computed =
        name.ends_with("rotary_emb.inv_freq");  // some versions of transformers stored RoPE's table
    require(computed || known.contains(name), "{} holds '{}', which is no parameter of this model",
            files.holding(name).path().string(), name);
  }
  for (const NamedTensor& parameter : model.named_parameters())
    load_parameter(files.holding(parameter.name), parameter.name, parameter.tensor);
}

namespace {

// All of them at once, from whatever device.
void write_all(const fs::path& path, std::vector<NamedTensor> tensors) {
  const autograd::NoGrad no_history;
  std::vector<ArrayView> arrays;
  for (NamedTensor& each : tensors) {
    each.tensor = each.tensor.to(Device::cpu);
    arrays.push_back(view_of(each.name, each.tensor));
  }
  write_safetensors(path, arrays);
}

}  // namespace

void save_gradients(const fs::path& path, const autograd::Module& model) {
  std::vector<NamedTensor> gradients;
  for (const auto& [name, tensor] : model.named_parameters())
    if (tensor.grad().defined()) gradients.push_back({name, tensor.grad()});
  write_all(path, std::move(gradients));
}

void dump_step(const fs::path& path, const VisitTensors& visit_parameters,
               const VisitTensors& visit_gradients) {
  std::vector<NamedTensor> kept;
  const auto keep_as = [&](const char* what) {
    return [&kept, &path, what](const NamedTensor& whole) {
      if (!path.empty()) kept.push_back({what + whole.name, whole.tensor.clone()});
    };
  };
  visit_parameters(keep_as("parameter."));
  visit_gradients(keep_as("gradient."));
  if (path.empty()) return;
  write_all(path, std::move(kept));
}

void dump_step(const fs::path& path, const autograd::Module& model) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& parameter : model.named_parameters()) {
    all.push_back({"parameter." + parameter.name, parameter.tensor});
    const Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined()) all.push_back({"gradient." + parameter.name, gradient});
  }
  write_all(path, std::move(all));
}

}  // namespace ringside::transformer

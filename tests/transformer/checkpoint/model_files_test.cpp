#include "transformer/checkpoint/model_files.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tests/transformer/small_model.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "transformer/checkpoint/checkpoint.hpp"
#include "transformer/checkpoint/stored_tensor.hpp"

using namespace ringside;
using namespace ringside::transformer;
using tests::tiny_config;

namespace {

// Saves a checkpoint in three shards, as Hugging Face's libraries do. `change` may modify the
// index.
void save_in_shards(const std::filesystem::path& directory, const Model& model,
                    const std::function<void(Json&)>& change = {}) {
  save_checkpoint(directory, model);
  std::filesystem::remove(directory / "model.safetensors");
  const auto parameters = model.named_parameters();
  Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
  for (std::size_t shard = 0; shard < 3; ++shard) {
    const std::string name = fmt::format("model-0000{}-of-00003.safetensors", shard + 1);
    std::vector<ArrayView> arrays;
    for (std::size_t i = shard * parameters.size() / 3; i < (shard + 1) * parameters.size() / 3;
         ++i) {
      arrays.push_back(view_of(parameters[i].name, parameters[i].tensor));
      index["weight_map"][parameters[i].name] = name;
    }
    write_safetensors(directory / name, arrays, {{"format", "pt"}});
  }
  if (change) change(index);
  std::ofstream(directory / "model.safetensors.index.json") << index.dump(2);
}

}  // namespace

TEST_CASE("a checkpoint in shards loads like one in a single file") {
  TemporaryDirectory directory;
  const Model saved(tiny_config());
  save_in_shards(directory.path(), saved);
  Config read = load_config(directory.path());
  read.initialise_seed = 99;
  const Model loaded(read);
  load_parameters(directory.path(), loaded);
  const auto a = saved.named_parameters(), b = loaded.named_parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    CHECK(std::ranges::equal(a[i].tensor.values<float>(), b[i].tensor.values<float>()));
  // As in transformers, model.safetensors takes precedence over an index.
  save_checkpoint(directory.path(), saved);
  directory.write("model.safetensors.index.json", "no index");
  CHECK_NOTHROW(load_parameters(directory.path(), loaded));
}

TEST_CASE("an index that does not match its shards is refused with the reason") {
  const std::string one = "model-00001-of-00003.safetensors",
                    two = "model-00002-of-00003.safetensors";
  const auto refusal = [&](const std::function<void(Json&)>& change,
                           const std::function<void(const std::filesystem::path&)>& damage = {}) {
    TemporaryDirectory directory;
    const Model model(tiny_config());
    save_in_shards(directory.path(), model, change);
    if (damage) damage(directory.path());
    try {
      load_parameters(directory.path(), model);
    } catch (const Error& error) {
      const std::string message = error.what(),
                        start = (directory.path() / "model.safetensors.index.json").string() +
                                " cannot be used: ";
      REQUIRE(message.starts_with(start));
      return message.substr(start.size());
    }
    return std::string("accepted");
  };
  const auto with = [&](const char* name, const Json& file) {
    return refusal([&](Json& index) { index["weight_map"][name] = file; });
  };
  CHECK(refusal({}) == "accepted");
  CHECK(refusal({}, [&](const auto& directory) {
          std::filesystem::remove(directory / two);
        }).ends_with(" is in " + two + ", which does not exist"));
  CHECK(refusal({}, [&](const auto& directory) {
          std::filesystem::resize_file(directory / two,
                                       std::filesystem::file_size(directory / two) - 4);
        }).find("it was cut short") != std::string::npos);
  CHECK(with("model.norm.weight", one) ==
        "it says that \"model.norm.weight\" is in " + one + ", which does not contain it");
  CHECK(refusal([](Json& index) { index["weight_map"].erase("model.norm.weight"); }) ==
        "it does not name \"model.norm.weight\", which model-00003-of-00003.safetensors contains");
  for (const char* outside :
       {"../model.safetensors", "/etc/model.safetensors", "..", "a/b.safetensors",
        "a\\b.safetensors", "", ".safetensors", "model.bin"}) {
    CHECK(with("model.norm.weight", outside) ==
          fmt::format("it says that \"model.norm.weight\" is in {}, which is not a safetensors "
                      "file in the same directory",
                      Json(outside).dump()));
  }
  CHECK(with("model.norm.weight", 7) ==
        "it says that \"model.norm.weight\" is in 7, which is not a safetensors file in the "
        "same directory");
  CHECK(refusal([](Json& index) { index.erase("weight_map"); }) ==
        "it has no weight_map from array names to files");
  CHECK(refusal([](Json& index) { index["weight_map"] = Json::object(); }) ==
        "its weight_map names no array");
  const auto index_is = [&](const std::string& text) {
    return refusal({}, [&](const auto& directory) {
      std::ofstream(directory / "model.safetensors.index.json") << text;
    });
  };
  CHECK(index_is("{\n") == "it is not JSON: the error is in line 2, at byte 2");
  CHECK(index_is(std::string("{}\0", 3)) == "it is not JSON: the error is in line 1, at byte 2");
  CHECK(index_is("[]") == "it has no weight_map from array names to files");
  CHECK(index_is(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})") ==
        "it names \"a\" twice");
  CHECK(index_is(std::string(100'000, '[')) == "it is nested more than 8 levels deep");
  // The same array in two shards.
  CHECK(refusal({},
                [&](const auto& directory) {
                  std::vector<std::byte> bytes(1000);
                  std::vector<ArrayView> arrays;
                  {
                    const SafetensorsFile before(directory / two);
                    for (const auto& [name, entry] : before.entries())
                      arrays.push_back(
                          {name, entry.type, entry.shape, std::span(bytes).first(entry.bytes())});
                  }
                  arrays.push_back(
                      {"model.norm.weight", StoredType::f32, {1}, std::span(bytes).first(4)});
                  write_safetensors(directory / two, arrays);
                }) ==
        "it says that \"model.norm.weight\" is in model-00003-of-00003.safetensors, but " + two +
            " contains it too");
}

#include "transformer/tokenizer/tokenizer_file.hpp"

#include <algorithm>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"
#include "transformer/tokenizer/alphabet.hpp"

namespace ringside::transformer {
namespace {

namespace fs = std::filesystem;

// The member `name`, or null if there is none.
const Json& member(const Json& object, std::string_view name) {
  static const Json none;
  const Json* const found = object.find(name);
  return found == nullptr ? none : *found;
}

std::string shown(const Json& json) {
  return fmt::format("{:.60}", json.ascii());
}

std::string type_of(const Json& json) {
  const Json& type = member(json, "type");
  return type.is_string() ? type.get<std::string>() : shown(json);
}

bool flag(const Json& object, const char* name) {
  const Json& value = member(object, name);
  require(value.is_null() || value.is_boolean(), "{} is {}, neither true nor false", name,
          shown(value));
  return value == true;
}

// An id. The Tokenizer checks it against the others.
std::int32_t id_from(const Json& value, std::string_view whose) {
  const bool fits =
      value.is_number_unsigned() && value.get<std::uint64_t>() < (std::uint64_t{1} << 31);
  require(fits, "the id of \"{}\" is {}, which is not an id", whose, shown(value));
  return value.get<std::int32_t>();
}

void refuse_other_kinds(const Json& json, const Json& model) {
  for (const char* changes_length : {"truncation", "padding"}) {
    require(member(json, changes_length).is_null(),
            "it asks for {}, which Ringside does not support: set \"{}\" to null", changes_length,
            changes_length);
  }
  const Json& normalizer = member(json, "normalizer");
  require(normalizer.is_null(),
          "it changes the text before encoding (normalizer {}), which Ringside does not support",
          type_of(normalizer));
  require(model.is_object(), "it has no model");
  require(!model.contains("type") || model["type"] == "BPE",
          "its model is {}, but Ringside knows BPE only", type_of(model));
  const Json& dropout = member(model, "dropout");
  require(dropout.is_null() || dropout == 0,
          "its model leaves merges out at random (dropout {}), which Ringside does not support",
          shown(dropout));
  require(!flag(model, "byte_fallback"),
          "its model is not byte-level: it has tokens such as <0x00> for bytes (byte_fallback)");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(model, affix);
    require(value.is_null() || value == "",
            "its model marks tokens with {} {}, which Ringside does not support", affix,
            shown(value));
  }
}

void refuse_other_decoders(const Json& decoder) {
  if (type_of(decoder) == "Sequence") {
    const Json& parts = member(decoder, "decoders");
    if (parts.is_array() && parts.size() == 1) return refuse_other_decoders(parts[0]);
  }
  require(type_of(decoder) == "ByteLevel", "its decoder is {}, but Ringside knows ByteLevel only",
          type_of(decoder));
}

std::vector<std::pair<std::string, std::int32_t>> vocabulary_from(const Json& json) {
  require(json.is_object(), "its model has no vocab that gives each token an id");
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  for (const auto& [letters, id] : json.items())
    vocabulary.emplace_back(letters, id_from(id, letters));
  return vocabulary;
}

// "a b" in older files, ["a", "b"] in newer ones, where a token may have a space in it.
std::pair<std::string, std::string> merge_from(const Json& json, std::size_t number) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    return {json[0].get<std::string>(), json[1].get<std::string>()};
  }
  if (json.is_string()) {
    const std::string text = json.get<std::string>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  fail("merge {} is {}, not two tokens", number, shown(json));
}

std::vector<std::pair<std::string, std::string>> merges_from(const Json& json) {
  require(json.is_array(), "its model has no list of merges");
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : json) {
    if (merge.is_string() && merge.text().starts_with("#version"))
      continue;  // a comment in old files
    merges.push_back(merge_from(merge, merges.size()));
  }
  return merges;
}

std::vector<AddedToken> added_from(const Json& json) {
  if (json.is_null()) return {};
  require(json.is_array(), "its added_tokens are {}, not a list", shown(json));
  std::vector<AddedToken> added;
  for (const Json& token : json) {
    const Json& content = member(token, "content");
    require(content.is_string(), "the added token {} has no content", shown(token));
    const std::string text = content.get<std::string>();
    require(
        !flag(token, "single_word"),
        "the added token \"{}\" matches whole words only (single_word), which Ringside does not "
        "support",
        text);
    added.push_back({text, id_from(member(token, "id"), text), flag(token, "special"),
                     flag(token, "normalized"), flag(token, "lstrip"), flag(token, "rstrip")});
  }
  return added;
}

// TemplateProcessing: "single" is a list of special tokens, with {"Sequence": {"id": "A"}} in the
// place of the text.
void add_template(const Json& json, TokenizerParts& parts) {
  const Json &single = member(json, "single"), &special = member(json, "special_tokens");
  require(single.is_array() && special.is_object(),
          "its post_processor TemplateProcessing has no single, or no special_tokens");
  bool after_text = false;
  for (const Json& piece : single) {
    const Json& token = member(piece, "SpecialToken");
    if (token.is_null()) {
      require(piece.contains("Sequence") && !after_text,
              "its post_processor TemplateProcessing has {} in single", shown(piece));
      after_text = true;
      continue;
    }
    const Json& name = member(token, "id");
    const Json& ids = member(member(special, name.is_string() ? name.text() : ""), "ids");
    require(name.is_string() && ids.is_array(),
            "its post_processor TemplateProcessing does not say which ids {} has", shown(name));
    for (const Json& id : ids)
      (after_text ? parts.after : parts.before).push_back(id_from(id, name.get<std::string>()));
  }
  require(after_text, "its post_processor TemplateProcessing does not contain the text");
}

void add_post_processor(const Json& json, TokenizerParts& parts) {
  if (json.is_null() || type_of(json) == "ByteLevel")
    return;  // ByteLevel changes only offsets, which Ringside does not compute
  if (type_of(json) == "TemplateProcessing") {
    require(parts.before.empty() && parts.after.empty(),
            "its post_processor adds special tokens twice");
    return add_template(json, parts);
  }
  const Json processors = type_of(json) == "Sequence" ? member(json, "processors") : Json();
  require(processors.is_array(),
          "its post_processor is {}, but Ringside knows ByteLevel, TemplateProcessing and a "
          "Sequence of these",
          type_of(json));
  for (const Json& processor : processors) add_post_processor(processor, parts);
}

Json parse_json(std::string_view text) {
  try {
    return Json::parse(text, {.what = "it", .deepest = 32});
  } catch (const JsonError&) {
    fail("it is not JSON");
  }
}

TokenizerParts parts_from(const Json& json) {
  require(json.is_object(), "it is not an object");
  const Json& model = member(json, "model");
  refuse_other_kinds(json, model);
  refuse_other_decoders(member(json, "decoder"));
  TokenizerParts parts;
  parts.vocabulary = vocabulary_from(member(model, "vocab"));
  parts.merges = merges_from(member(model, "merges"));
  parts.ignore_merges = flag(model, "ignore_merges");
  parts.added = added_from(member(json, "added_tokens"));
  const Json& unknown = member(model, "unk_token");
  if (unknown.is_string()) parts.unknown = unknown.get<std::string>();
  add_post_processor(member(json, "post_processor"), parts);
  parts.pre_tokenizer = member(json, "pre_tokenizer").dump();
  parts.post_processor = member(json, "post_processor").dump();
  parts.decoder = member(json, "decoder").dump();
  return parts;
}

Json added_json(const std::vector<AddedToken>& added) {
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", false},
                    {"lstrip", token.strip_left},
                    {"rstrip", token.strip_right},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

Json model_json(const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  auto by_id = parts.vocabulary;
  std::sort(by_id.begin(), by_id.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::unordered_map<std::int32_t, const std::string*> letters;
  Json vocabulary = Json::object();
  for (const auto& [text, id] : by_id) {
    letters[id] = &text;
    vocabulary.items().push_back({text, id});  // operator[] would search all earlier entries
  }
  Json merges = Json::array();
  for (const auto& [left, right] : tokenizer.merges().in_order())
    merges.push_back(Json::array({*letters.at(left), *letters.at(right)}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", parts.unknown.empty() ? Json() : Json(parts.unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", parts.ignore_merges},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

void write_file(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

Tokenizer parse_tokenizer(std::string_view text) {
  return Tokenizer(parts_from(parse_json(text)));
}

std::string tokenizer_json(const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  const Json all = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added_json(parts.added)},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", Json::parse(parts.pre_tokenizer)},
                    {"post_processor", Json::parse(parts.post_processor)},
                    {"decoder", Json::parse(parts.decoder)},
                    {"model", model_json(tokenizer)}};
  return all.dump(2);
}

Tokenizer load_tokenizer(const fs::path& file_or_directory) {
  std::error_code error;
  const fs::path path = fs::is_directory(file_or_directory, error)
                            ? file_or_directory / "tokenizer.json"
                            : file_or_directory;
  const std::string text = read_file(path, "the tokenizer");
  try {
    return parse_tokenizer(text);
  } catch (const Error& problem) {
    fail("the tokenizer {} cannot be used: {}", path.string(), problem.what());
  }
}

fs::path save_tokenizer(const fs::path& path, const Tokenizer& tokenizer) {
  if (path.extension() == ".json") {
    write_file(path, tokenizer_json(tokenizer));
    return path;
  }
  std::error_code error;
  fs::create_directories(path, error);
  require(!error, "cannot create the directory {}: {}", path.string(), error.message());
  write_file(path / "tokenizer.json", tokenizer_json(tokenizer));
  const fs::path config = path / "tokenizer_config.json";
  if (!fs::exists(config, error))
    write_file(config, Json{{"tokenizer_class", "PreTrainedTokenizerFast"}}.dump(2) + "\n");
  return path / "tokenizer.json";
}

}  // namespace ringside::transformer

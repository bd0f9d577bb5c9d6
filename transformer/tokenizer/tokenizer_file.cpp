#include "transformer/tokenizer/tokenizer_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "transformer/tokenizer/alphabet.hpp"

namespace ringside::transformer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

using Sorted =
    nlohmann::json;  // finds a key among 100,000 in no time, which an ordered one does not

// A member, or null where there is none.
template <class J>
J member(const J& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? J() : *found;
}

template <class J>
std::string shortly(const J& json) {
  return fmt::format("{:.60}", json.dump(-1, ' ', true));
}

std::string type_of(const Json& said) {
  const Json type = said.is_object() ? member(said, "type") : Json();
  return type.is_string() ? type.get<std::string>() : shortly(said);
}

bool flag(const Json& object, const char* name) {
  const Json value = member(object, name);
  require(value.is_null() || value.is_boolean(), "{} is {}, neither true nor false", name,
          shortly(value));
  return value == true;
}

// The id in `value`, which the vocabulary's checks then hold against the others.
template <class J>
std::int32_t id_from(const J& value, std::string_view whose) {
  const bool fits =
      value.is_number_unsigned() && value.template get<std::uint64_t>() < (std::uint64_t{1} << 31);
  require(fits, "the id of \"{}\" is {}, which is no id", whose, shortly(value));
  return value.template get<std::int32_t>();
}

void refuse_other_kinds(const Json& said, const Json& model) {
  for (const char* changes_length : {"truncation", "padding"}) {
    require(member(said, changes_length).is_null(),
            "it asks for {}, which Ringside does not do: set \"{}\" to null", changes_length,
            changes_length);
  }
  const Json normalizer = member(said, "normalizer");
  require(normalizer.is_null(),
          "it changes the text before it is encoded (normalizer {}), which Ringside does not do",
          type_of(normalizer));
  require(model.is_object(), "it has no model");
  require(!model.contains("type") || model["type"] == "BPE",
          "its model is {}, but Ringside knows BPE only", type_of(model));
  const Json dropout = member(model, "dropout");
  require(dropout.is_null() || dropout == 0,
          "its model leaves merges out at random (dropout {}), which Ringside does not do",
          shortly(dropout));
  require(!flag(model, "byte_fallback"),
          "its model is not byte-level: it writes bytes as <0x00> (byte_fallback)");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json value = member(model, affix);
    require(value.is_null() || value == "",
            "its model marks tokens with {} {}, which Ringside does not do", affix, shortly(value));
  }
}

void refuse_other_decoders(const Json& decoder) {
  if (type_of(decoder) == "Sequence") {
    const Json parts = member(decoder, "decoders");
    if (parts.is_array() && parts.size() == 1) return refuse_other_decoders(parts[0]);
  }
  require(type_of(decoder) == "ByteLevel", "its decoder is {}, but Ringside knows ByteLevel only",
          type_of(decoder));
}

std::vector<std::pair<std::string, std::int32_t>> vocabulary_from(const Sorted& said) {
  require(said.is_object(), "its model has no vocab that gives each token an id");
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  for (const auto& [letters, id] : said.items())
    vocabulary.emplace_back(letters, id_from(id, letters));
  return vocabulary;
}

// "a b" in older files, ["a", "b"] in newer ones, where a token may have a space in it.
std::pair<std::string, std::string> merge_from(const Sorted& said, std::size_t number) {
  if (said.is_array() && said.size() == 2 && said[0].is_string() && said[1].is_string()) {
    return {said[0].get<std::string>(), said[1].get<std::string>()};
  }
  if (said.is_string()) {
    const std::string text = said.get<std::string>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  fail("merge {} is {}, not two tokens", number, shortly(said));
}

std::vector<std::pair<std::string, std::string>> merges_from(const Sorted& said) {
  require(said.is_array(), "its model has no list of merges");
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Sorted& merge : said) {
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version"))
      continue;  // a comment of old merges.txt
    merges.push_back(merge_from(merge, merges.size()));
  }
  return merges;
}

std::vector<AddedToken> added_from(const Json& said) {
  if (said.is_null()) return {};
  require(said.is_array(), "its added_tokens are {}, not a list", shortly(said));
  std::vector<AddedToken> added;
  for (const Json& token : said) {
    const Json content = token.is_object() ? member(token, "content") : Json();
    require(content.is_string(), "the added token {} has no content", shortly(token));
    const std::string text = content.get<std::string>();
    require(!flag(token, "single_word"),
            "the added token \"{}\" is to be found as a whole word only (single_word), which "
            "Ringside does not do",
            text);
    added.push_back({text, id_from(member(token, "id"), text), flag(token, "special"),
                     flag(token, "normalized"), flag(token, "lstrip"), flag(token, "rstrip")});
  }
  return added;
}

// TemplateProcessing: "single" is a list of special tokens with the text, {"Sequence": {"id":
// "A"}}, among them.
void add_template(const Json& said, TokenizerParts& parts) {
  const Json single = member(said, "single"), special = member(said, "special_tokens");
  require(single.is_array() && special.is_object(),
          "its post_processor TemplateProcessing has no single, or no special_tokens");
  bool text_has_come = false;
  for (const Json& piece : single) {
    const Json token = piece.is_object() ? member(piece, "SpecialToken") : Json();
    if (token.is_null()) {
      require(piece.is_object() && piece.contains("Sequence") && !text_has_come,
              "its post_processor TemplateProcessing has {} in single", shortly(piece));
      text_has_come = true;
      continue;
    }
    const Json name = token.is_object() ? member(token, "id") : Json();
    const Json meant =
        name.is_string() ? member(special, name.get_ref<const std::string&>().c_str()) : Json();
    const Json ids = meant.is_object() ? member(meant, "ids") : Json();
    require(ids.is_array(), "its post_processor TemplateProcessing does not say which ids {} has",
            shortly(name));
    for (const Json& id : ids)
      (text_has_come ? parts.behind : parts.before).push_back(id_from(id, name.get<std::string>()));
  }
  require(text_has_come, "its post_processor TemplateProcessing has no place for the text");
}

void add_post_processor(const Json& said, TokenizerParts& parts) {
  if (said.is_null() || type_of(said) == "ByteLevel")
    return;  // ByteLevel shifts offsets, which Ringside does not give
  if (type_of(said) == "TemplateProcessing") {
    require(parts.before.empty() && parts.behind.empty(),
            "its post_processor puts tokens around a text twice");
    return add_template(said, parts);
  }
  const Json processors = type_of(said) == "Sequence" ? member(said, "processors") : Json();
  require(processors.is_array(),
          "its post_processor is {}, but Ringside knows ByteLevel, TemplateProcessing and a "
          "Sequence of these",
          type_of(said));
  for (const Json& processor : processors) add_post_processor(processor, parts);
}

// `said` is all but the vocab and the merges, which `lists` has.
TokenizerParts parts_from(const Json& said, const Sorted& lists) {
  require(said.is_object(), "it is not an object");
  const Json model = member(said, "model");
  refuse_other_kinds(said, model);
  refuse_other_decoders(member(said, "decoder"));
  TokenizerParts parts;
  parts.vocabulary = vocabulary_from(member(lists, "vocab"));
  parts.merges = merges_from(member(lists, "merges"));
  parts.ignore_merges = flag(model, "ignore_merges");
  parts.added = added_from(member(said, "added_tokens"));
  const Json unknown = member(model, "unk_token");
  if (unknown.is_string()) parts.unknown = unknown.get<std::string>();
  add_post_processor(member(said, "post_processor"), parts);
  parts.pre_tokenizer = member(said, "pre_tokenizer").dump();
  parts.post_processor = member(said, "post_processor").dump();
  parts.decoder = member(said, "decoder").dump();
  return parts;
}

// Parsed, as far as `wanted` says of the keys, with their depth. Not where it is nested so deeply
// that reading it alone would use the memory up.
template <class J, class Wanted>
J parse_json(std::string_view text, Wanted wanted) {
  const auto look = [&](int depth, typename J::parse_event_t event, J& value) {
    require(depth <= 32, "it is nested deeper than a tokenizer.json can be");
    return event != J::parse_event_t::key ||
           wanted(depth, value.template get_ref<const std::string&>());
  };
  try {
    return J::parse(text, look);
  } catch (const typename J::exception&) {
    fail("it is not JSON");
  }
}

bool is_long_list(int depth, const std::string& key) {
  return depth == 2 && (key == "vocab" || key == "merges");
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
  Json::object_t vocabulary;
  for (const auto& [text, id] : by_id) {
    letters[id] = &text;
    vocabulary.emplace_back(
        text, id);  // as operator[] of an ordered object looks through all that are there
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

void write_whole(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

Tokenizer parse_tokenizer(std::string_view json) {
  const auto said = parse_json<Json>(
      json, [](int depth, const std::string& key) { return !is_long_list(depth, key); });
  const auto lists = parse_json<Sorted>(json, [](int depth, const std::string& key) {
    return depth == 1 ? key == "model" : is_long_list(depth, key) || depth > 2;
  });
  return Tokenizer(parts_from(said, lists.is_object() ? member(lists, "model") : Sorted()));
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

Tokenizer load_tokenizer(const fs::path& said) {
  std::error_code error;
  const fs::path path = fs::is_directory(said, error) ? said / "tokenizer.json" : said;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "cannot read the tokenizer {}: {}", path.string(), std::strerror(errno));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  try {
    return parse_tokenizer(text);
  } catch (const Error& problem) {
    fail("the tokenizer {} cannot be used: {}", path.string(), problem.what());
  }
}

fs::path save_tokenizer(const fs::path& path, const Tokenizer& tokenizer) {
  if (path.extension() == ".json") {
    write_whole(path, tokenizer_json(tokenizer));
    return path;
  }
  std::error_code error;
  fs::create_directories(path, error);
  require(!error, "cannot make the folder {}: {}", path.string(), error.message());
  write_whole(path / "tokenizer.json", tokenizer_json(tokenizer));
  const fs::path config = path / "tokenizer_config.json";
  if (!fs::exists(config, error))
    write_whole(config, Json{{"tokenizer_class", "PreTrainedTokenizerFast"}}.dump(2) + "\n");
  return path / "tokenizer.json";
}

}  // namespace ringside::transformer

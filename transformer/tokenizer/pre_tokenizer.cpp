#include "transformer/tokenizer/pre_tokenizer.hpp"

#include <map>
#include <optional>

#include "base/error.hpp"

namespace ringside::transformer {
namespace {

// Contractions, words, numbers, other characters. The last of a run of spaces belongs to the word
// after it.
constexpr const char* gpt2_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Joins neighbouring parts of a text as `Delimiters` says. Keeps the latest piece until it cannot
// grow any more.
class Joiner {
 public:
  Joiner(Delimiters delimiters, const TakePiece& take) : delimiters_(delimiters), take_(take) {}

  void add(std::string_view part, bool is_delimiter) {
    if (is_delimiter && delimiters_ == Delimiters::removed) return;
    if (held_ && belongs_to_held(is_delimiter)) {
      held_ = std::string_view(held_->data(), held_->size() + part.size());
    } else {
      finish();
      held_ = part;
    }
    held_ends_with_delimiter_ = is_delimiter;
  }

  void finish() {
    if (held_ && !held_->empty()) take_(*held_);
    held_.reset();
  }

 private:
  bool belongs_to_held(bool is_delimiter) const {
    if (delimiters_ == Delimiters::contiguous) return is_delimiter == held_ends_with_delimiter_;
    const bool ends = is_delimiter && !held_ends_with_delimiter_,
               begins = !is_delimiter && held_ends_with_delimiter_;
    return (delimiters_ == Delimiters::merged_with_previous && ends) ||
           (delimiters_ == Delimiters::merged_with_next && begins);
  }

  Delimiters delimiters_;
  const TakePiece& take_;
  std::optional<std::string_view> held_;
  bool held_ends_with_delimiter_ = false;
};

std::string type_of(const Json& json) {
  const bool named = json.is_object() && json.contains("type") && json["type"].is_string();
  require(named, "its pre_tokenizer is {:.60}, which has no type", json.dump());
  return json["type"].get<std::string>();
}

bool flag(const Json& json, const char* name, bool if_absent) {
  const Json value = json.value(name, Json(if_absent));
  require(value.is_boolean(), "the {} of its pre_tokenizer is {:.40}, neither true nor false", name,
          value.dump());
  return value.get<bool>();
}

Delimiters delimiters_named(const Json& name) {
  static const std::map<std::string, Delimiters> known = {
      {"Removed", Delimiters::removed},
      {"Isolated", Delimiters::isolated},
      {"MergedWithPrevious", Delimiters::merged_with_previous},
      {"MergedWithNext", Delimiters::merged_with_next},
      {"Contiguous", Delimiters::contiguous}};
  const auto found = name.is_string() ? known.find(name.get<std::string>()) : known.end();
  require(found != known.end(),
          "the behavior of its pre_tokenizer Split is {:.40}, which Ringside does not know",
          name.dump());
  return found->second;
}

Pattern pattern_from(const Json& json) {
  if (json.is_object() && json.size() == 1) {
    const auto& [kind, text] = json.items()[0];
    if (text.is_string() && kind == "Regex") return Pattern::regex(text.text());
    if (text.is_string() && kind == "String") return Pattern::literal(text.text());
  }
  fail("the pattern of its pre_tokenizer Split is {:.60}, neither a Regex nor a String",
       json.dump());
}

}  // namespace

void cut(std::string_view text, const Pattern& pattern, Delimiters delimiters, bool invert,
         const TakePiece& take) {
  Joiner joiner(delimiters, take);
  std::size_t last_end = 0;
  const auto add = [&](std::size_t begin, std::size_t end, bool matches) {
    joiner.add(text.substr(begin, end - begin), matches != invert);
  };
  pattern.find_all(text, [&](std::size_t begin, std::size_t end) {
    if (begin > last_end) add(last_end, begin, false);
    add(begin, end, true);
    last_end = end;
  });
  if (last_end < text.size()) add(last_end, text.size(), false);
  joiner.finish();
}

PreTokenizer::PreTokenizer(const Json& json) {
  require(
      !json.is_null(),
      "it has no pre_tokenizer: Ringside reads byte-level vocabularies, whose pre_tokenizer is, "
      "or ends with, ByteLevel");
  std::vector<Json> stages = {json};
  if (type_of(json) == "Sequence") {
    const Json list = json.value("pretokenizers", Json());
    require(list.is_array(), "its pre_tokenizer Sequence has no list of pretokenizers");
    stages = list.get<std::vector<Json>>();
  }
  std::string last;  // the type of the stage before
  for (const Json& stage : stages) {
    const std::string type = type_of(stage);
    require(last != "ByteLevel",
            "its pre_tokenizer has a {} after ByteLevel, where the text is already letters", type);
    if (type == "ByteLevel")
      add_byte_level(stage);
    else if (type == "Split")
      add_split(stage);
    else if (type == "Digits")
      add_digits(stage);
    else
      fail(
          "its pre_tokenizer is {}, but Ringside knows ByteLevel, Split, Digits and a Sequence of "
          "these",
          type);
    last = type;
  }
  require(last == "ByteLevel",
          "its pre_tokenizer does not end with ByteLevel: Ringside reads byte-level vocabularies "
          "only");
}

void PreTokenizer::add_split(const Json& json) {
  stages_.push_back({pattern_from(json.value("pattern", Json())),
                     delimiters_named(json.value("behavior", Json())), flag(json, "invert", false),
                     false});
}

void PreTokenizer::add_digits(const Json& json) {
  const bool each = flag(json, "individual_digits", false);
  stages_.push_back({Pattern::regex("\\p{N}"), each ? Delimiters::isolated : Delimiters::contiguous,
                     false, false});
}

// Without use_regex, a stage whose pattern matches nothing still adds the space.
void PreTokenizer::add_byte_level(const Json& json) {
  const bool uses_regex = flag(json, "use_regex", true),
             add_space = flag(json, "add_prefix_space", true);
  if (!uses_regex && !add_space) return;
  stages_.push_back({Pattern::regex(uses_regex ? gpt2_expression : "(?!)"), Delimiters::isolated,
                     false, add_space});
}

void PreTokenizer::words(std::string_view text, const TakePiece& take) const {
  if (!text.empty()) words_from(0, text, take);
}

void PreTokenizer::words_from(std::size_t index, std::string_view text,
                              const TakePiece& take) const {
  if (index == stages_.size()) return take(text);
  const Stage& stage = stages_[index];
  const auto next_stage = [&](std::string_view piece) { words_from(index + 1, piece, take); };
  if (stage.add_space && text.front() != ' ')
    cut(fmt::format(" {}", text), stage.pattern, stage.delimiters, stage.invert, next_stage);
  else
    cut(text, stage.pattern, stage.delimiters, stage.invert, next_stage);
}

Json byte_level_pre_tokenizer(const std::string& expression) {
  const bool has_expression = !expression.empty();
  Json byte_level = {{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", !has_expression}};
  if (!has_expression) return byte_level;
  Json split = {{"type", "Split"},
                {"pattern", {{"Regex", expression}}},
                {"behavior", "Isolated"},
                {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
}

}  // namespace ringside::transformer

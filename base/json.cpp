#include "base/json.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ringside {
namespace {

using Library = nlohmann::ordered_json;

std::string shown(const Json& json) {
  const std::string text = json.ascii();
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

[[noreturn]] void refuse(const Json& json, std::string_view expected) {
  throw JsonError(fmt::format("{} is expected in JSON, not {}", expected, shown(json)));
}

std::size_t line_of(std::string_view text, std::size_t offset) {
  return 1 + static_cast<std::size_t>(std::count(
                 text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
}

// Builds the value from what the library's parser finds.
class Builder final : public nlohmann::json_sax<Library> {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool truth) override { return add(truth); }
  bool number_integer(number_integer_t number) override { return add(number); }
  bool number_unsigned(number_unsigned_t number) override { return add(number); }
  bool number_float(number_float_t number, const string_t&) override { return add(number); }
  bool string(string_t& text) override { return add(std::move(text)); }
  bool binary(binary_t&) override { return false; }  // not in a text

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& key) override {
    Open& object = open_.back();
    const auto [found, is_new] = object.places.try_emplace(key, object.places.size());
    if (!is_new && limits_.unique_keys) fail("{} names {} twice", limits_.what, shown(key));
    if (is_new) object.container->items().push_back({std::move(key), {}});
    object.place = found->second;
    return true;
  }
  bool end_object() override { return end_array(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Library::parse_error*>(&error) == nullptr)
      throw JsonError(fmt::format("{} has a number that is too large for fp64", limits_.what));
    const std::string_view words = error.what();  // "[json.exception.parse_error.101] parse ..."
    const std::size_t read = std::min(position, text_.size());
    throw JsonError(std::string(words.substr(words.find("] ") + 2)), line_of(text_, read),
                    std::min(position - 1, read));
  }

  Json take() { return std::move(whole_); }

 private:
  Json& put(Json value) {
    if (open_.empty()) return whole_ = std::move(value);
    const Open& parent = open_.back();
    if (parent.container->is_array()) return parent.container->emplace_back(std::move(value));
    return parent.container->items()[parent.place].value = std::move(value);
  }
  bool add(Json value) {
    put(std::move(value));
    return true;
  }
  bool open(Json container) {
    require(open_.size() < static_cast<std::size_t>(limits_.deepest),
            "{} is nested more than {} levels deep", limits_.what, limits_.deepest);
    open_.push_back({&put(std::move(container)), {}, 0});
    return true;
  }

  // A container that has begun. It does not grow while one inside it is open.
  struct Open {
    Json* container;
    std::unordered_map<std::string, std::size_t> places;  // of members, by key
    std::size_t place;                                    // of the next value
  };

  std::string_view text_;
  const JsonLimits& limits_;
  Json whole_;
  std::vector<Open> open_;  // from the outermost
};

Library library_form(const Json& json) {
  if (json.is_object()) {
    Library::object_t object;
    object.reserve(json.size());
    for (const auto& [key, value] : json.items()) object.emplace_back(key, library_form(value));
    return object;
  }
  if (json.is_array()) {
    Library::array_t array;
    array.reserve(json.size());
    for (const Json& each : json) array.push_back(library_form(each));
    return array;
  }
  if (json.is_string()) return json.text();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  return nullptr;
}

// Whether a list in braces is an object.
bool are_members(std::initializer_list<Json::Item> items) {
  return std::all_of(items.begin(), items.end(), [](const Json::Item& item) {
    return item.value.is_array() && item.value.size() == 2 && item.value[0].is_string();
  });
}

}  // namespace

Json::Json() noexcept = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(std::string text) : value_(std::move(text)) {}

Json::Json(std::initializer_list<Item> items)
    : Json(are_members(items) ? object(items) : array(items)) {}

Json Json::array(std::initializer_list<Item> items) {
  Json json;
  auto& list = json.value_.emplace<std::vector<Json>>();
  list.reserve(items.size());
  for (const Item& item : items) list.push_back(std::move(item.value));
  return json;
}

Json Json::object(std::initializer_list<Item> items) {
  Json json;
  json.value_.emplace<std::vector<Member>>();
  for (const Item& item : items) json[item.value.at(0).text()] = std::move(item.value.at(1));
  return json;
}

void Json::set(std::variant<bool, std::int64_t, std::uint64_t, double> number) {
  std::visit([this](auto each) { value_ = each; }, number);
}

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  Builder builder(text, limits);
  Library::sax_parse(text.begin(), text.end(), &builder);
  // The library takes a NUL byte for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const std::size_t line_start = text.rfind('\n', nul) + 1;  // npos + 1 is 0
    throw JsonError(
        fmt::format("parse error at line {}, column {}: syntax error while parsing value - "
                    "unexpected NUL byte; expected end of input",
                    line_of(text, nul), nul - line_start + 1),
        line_of(text, nul), nul);
  }
  return builder.take();
}

std::optional<Json> Json::parse_if_possible(std::string_view text) {
  try {
    return parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Json::dump(int indent) const {
  try {
    return library_form(*this).dump(indent);
  } catch (const Library::exception&) {
    throw JsonError(fmt::format("JSON has texts of UTF-8 alone, not {}", shown(*this)));
  }
}

std::string Json::ascii() const {
  return library_form(*this).dump(-1, ' ', true, Library::error_handler_t::replace);
}

bool Json::is_number() const {
  return is_number_integer() || std::holds_alternative<double>(value_);
}
bool Json::is_number_integer() const {
  return is_number_unsigned() || std::holds_alternative<std::int64_t>(value_);
}
bool Json::is_number_unsigned() const {
  return std::holds_alternative<std::uint64_t>(value_);
}

bool Json::truth() const {
  if (!is_boolean()) refuse(*this, "true or false");
  return std::get<bool>(value_);
}

double Json::number() const {
  if (const auto* negative = std::get_if<std::int64_t>(&value_))
    return static_cast<double>(*negative);
  if (const auto* natural = std::get_if<std::uint64_t>(&value_))
    return static_cast<double>(*natural);
  if (!is_number()) refuse(*this, "a number");
  return std::get<double>(value_);
}

std::uint64_t Json::integer(std::int64_t least, std::uint64_t most) const {
  if (const auto* negative = std::get_if<std::int64_t>(&value_); negative && *negative >= least)
    return static_cast<std::uint64_t>(*negative);
  if (const auto* natural = std::get_if<std::uint64_t>(&value_); natural && *natural <= most)
    return *natural;
  if (const auto* number = std::get_if<double>(&value_);
      number && *number >= -0x1p63 && *number < 0x1p64)
    return (*number < 0 ? Json(static_cast<std::int64_t>(*number))
                        : Json(static_cast<std::uint64_t>(*number)))
        .integer(least, most);
  refuse(*this, fmt::format("an integer from {} to {}", least, most));
}

const std::string& Json::text() const {
  if (!is_string()) refuse(*this, "a text");
  return std::get<std::string>(value_);
}

std::size_t Json::size() const {
  if (is_array()) return std::get<std::vector<Json>>(value_).size();
  if (is_object()) return items().size();
  return is_null() ? 0 : 1;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : items())
    if (member.key == key) return &member.value;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* const found = find(key)) return *found;
  refuse(*this, fmt::format("an object with the key \"{}\"", key));
}
Json& Json::at(std::string_view key) {
  return const_cast<Json&>(std::as_const(*this).at(key));
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_.emplace<std::vector<Member>>();
  if (const Json* const found = find(key)) return const_cast<Json&>(*found);
  return items().emplace_back(Member{std::string(key), {}}).value;
}

const std::vector<Json::Member>& Json::items() const {
  if (!is_object()) refuse(*this, "an object");
  return std::get<std::vector<Member>>(value_);
}
std::vector<Json::Member>& Json::items() {
  return const_cast<std::vector<Member>&>(std::as_const(*this).items());
}

void Json::update(const Json& object) {
  for (const auto& [key, value] : object.items()) (*this)[key] = value;
}

void Json::erase(std::string_view key) {
  std::erase_if(items(), [&](const Member& member) { return member.key == key; });
}

const Json* Json::begin() const {
  if (is_null()) return nullptr;
  if (!is_array()) refuse(*this, "a list");
  return std::get<std::vector<Json>>(value_).data();
}
const Json* Json::end() const {
  return is_null() ? nullptr : begin() + size();
}

const Json& Json::element(std::size_t index) const {
  if (!is_array() || index >= size())
    refuse(*this, fmt::format("a list of at least {} elements", index + 1));
  return *(begin() + index);
}

void Json::push_back(Json value) {
  emplace_back(std::move(value));
}

Json& Json::emplace_back(Json value) {
  if (is_null()) value_.emplace<std::vector<Json>>();
  if (!is_array()) refuse(*this, "a list");
  return std::get<std::vector<Json>>(value_).emplace_back(std::move(value));
}

void Json::erase_element(std::size_t index) {
  element(index);
  auto& list = std::get<std::vector<Json>>(value_);
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number() && a.value_.index() != b.value_.index())
    return a.number() == b.number();
  if (a.value_.index() != b.value_.index()) return false;
  if (!a.is_object() && !a.is_array()) return (a <=> b) == 0 || (a.is_null() && b.is_null());
  if (a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto& [key, value] = a.items()[i];
    const Json::Member& likely = b.items()[i];  // in most cases the order is the same
    const Json* const other = likely.key == key ? &likely.value : b.find(key);
    if (other == nullptr || !(value == *other)) return false;
  }
  return true;
}

std::partial_ordering operator<=>(const Json& a, const Json& b) {
  if (a.is_string() && b.is_string()) return a.text() <=> b.text();
  if (a.is_boolean() && b.is_boolean()) return a.truth() <=> b.truth();
  if (a.is_number_unsigned() && b.is_number_unsigned())
    return std::get<std::uint64_t>(a.value_) <=> std::get<std::uint64_t>(b.value_);
  if (a.is_number_integer() && b.is_number_integer()) {
    if (a.is_number_unsigned() != b.is_number_unsigned())
      return a.is_number_unsigned() <=> b.is_number_unsigned();
    return std::get<std::int64_t>(a.value_) <=> std::get<std::int64_t>(b.value_);
  }
  if (a.is_number() && b.is_number()) return a.number() <=> b.number();
  return std::partial_ordering::unordered;
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
  return out << json.dump();
}

}  // namespace ringside

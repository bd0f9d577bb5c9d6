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

// Throws the error that this byte is wrong, in the words of the library.
[[noreturn]] void refuse_syntax(std::string_view text, std::size_t offset, std::string_view words) {
  const std::string_view before = text.substr(0, offset);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  JsonError error(fmt::format("parse error at line {}, column {}: {}", lines + 1,
                              offset - before.rfind('\n'), words));  // npos is -1
  error.line = static_cast<std::size_t>(lines) + 1;
  error.offset = offset;
  throw error;
}

// Builds the value from what the library's parser finds.
struct Builder {
  // A container that has begun. It does not grow while one inside it is open.
  struct Open {
    Json* container;
    std::unordered_map<std::string, std::size_t> places;  // of members, by key
    Json* member;                                         // takes the next value
  };

  std::string_view text;
  const JsonLimits& limits;
  Json whole = {};
  std::vector<Open> open = {};  // from the outermost

  bool null() { return add(nullptr); }
  bool boolean(bool truth) { return add(truth); }
  bool number_integer(std::int64_t number) { return add(number); }
  bool number_unsigned(std::uint64_t number) { return add(number); }
  bool number_float(double number, const std::string&) { return add(number); }
  bool string(std::string& its_text) { return add(std::move(its_text)); }
  bool binary(Library::binary_t&) { return false; }  // not in a text
  bool start_object(std::size_t) { return add(Json::object()); }
  bool start_array(std::size_t) { return add(Json::array()); }
  bool end_object() { return end_array(); }
  bool end_array() { return open.pop_back(), true; }

  bool add(Json value) {
    const bool begins = value.is_object() || value.is_array();
    Json* const parent = open.empty() ? nullptr : open.back().container;
    Json& place = parent == nullptr    ? whole
                  : parent->is_array() ? parent->emplace_back({})
                                       : *open.back().member;
    place = std::move(value);
    if (!begins) return true;
    require(open.size() < static_cast<std::size_t>(limits.deepest),
            "{} is nested more than {} levels deep", limits.what, limits.deepest);
    return open.push_back({&place, {}, nullptr}), true;
  }

  bool key(std::string& key) {
    Open& object = open.back();
    std::vector<Json::Member>& members = object.container->items();
    const auto [place, is_new] = object.places.try_emplace(key, members.size());
    if (!is_new && limits.unique_keys) fail("{} names {} twice", limits.what, shown(key));
    if (is_new) members.push_back({std::move(key), {}});
    object.member = &members[place->second].value;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Library::exception& error) {
    if (dynamic_cast<const Library::parse_error*>(&error) == nullptr)
      throw JsonError(fmt::format("{} has a number that is too large for fp64", limits.what));
    const std::string_view words = error.what();  // "[...] parse error at line 1, column 2: ..."
    refuse_syntax(text, std::min(position - 1, text.size()), words.substr(words.find(": ") + 2));
  }
};

}  // namespace

// The library writes numbers, and texts that have escapes or are not ASCII. Lists and objects never
// become its type, which takes longer than all else.
struct Json::Writer {
  std::string& out;
  int indent;
  bool ascii;
  nlohmann::detail::serializer<Library> library;
  std::size_t level = 0;

  void begin_line() {
    if (indent >= 0) out.append(1, '\n').append(level * static_cast<std::size_t>(indent), ' ');
  }
  void operator()(const auto& scalar) { library.dump(scalar, false, ascii, 0); }
  void operator()(const std::string& text) {
    const auto is_plain = [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
    if (!std::all_of(text.begin(), text.end(), is_plain))
      return library.dump(text, false, ascii, 0);
    out.append(1, '"').append(text).append(1, '"');
  }
  void operator()(const Member& member) {
    (*this)(member.key);
    out += indent < 0 ? ":" : ": ";
    (*this)(member.value);
  }
  void operator()(const Json& json) { std::visit(*this, json.value_); }
  template <class T>
  void operator()(const std::vector<T>& all) {
    out += std::same_as<T, Member> ? '{' : '[';
    ++level;
    for (const T& each : all) {
      if (&each != all.data()) out += ',';
      begin_line();
      (*this)(each);
    }
    --level;
    if (!all.empty()) begin_line();
    out += std::same_as<T, Member> ? '}' : ']';
  }
};

Json::Json() noexcept = default;
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json::~Json() = default;
Json& Json::operator=(Json other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}

Json::Json(std::string text) : value_(std::move(text)) {}

// An object if all items are pairs with a text first.
Json::Json(std::initializer_list<Item> items) : Json(array(items)) {
  if (!std::all_of(begin(), end(), [](const Json& item) {
        return item.is_array() && item.size() == 2 && item[0].is_string();
      }))
    return;
  Json members = object();
  for (Json& item : *this) members[item[0].text()] = std::move(item[1]);
  *this = std::move(members);
}

Json Json::array(std::initializer_list<Item> items) {
  Json json;
  auto& list = json.value_.emplace<std::vector<Json>>();
  list.reserve(items.size());
  for (const Item& item : items) list.push_back(std::move(item.value));
  return json;
}

Json Json::object() {
  Json json;
  json.value_.emplace<std::vector<Member>>();
  return json;
}

void Json::set(std::variant<bool, std::int64_t, std::uint64_t, double> number) {
  std::visit([this](auto each) { value_ = each; }, number);
}

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  Builder builder{text, limits};
  Library::sax_parse(text.begin(), text.end(), &builder);
  // The library takes a NUL byte for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    refuse_syntax(text, nul,
                  "syntax error while parsing value - unexpected NUL byte; expected end of input");
  return std::move(builder.whole);
}

std::optional<Json> Json::parse_if_possible(std::string_view text) {
  try {
    return parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Json::written(int indent, bool ascii) const {
  using nlohmann::detail::error_handler_t;
  std::string out;
  const nlohmann::detail::output_adapter_t<char> adapter =
      nlohmann::detail::output_adapter<char, std::string>(out);
  try {
    Writer{out,
           indent,
           ascii,
           {adapter, ' ', ascii ? error_handler_t::replace : error_handler_t::strict}}(*this);
  } catch (const Library::exception&) {
    throw JsonError(fmt::format("JSON has texts of UTF-8 alone, not {}", shown(*this)));
  }
  return out;
}

void Json::refuse(std::string_view expected) const {
  throw JsonError(fmt::format("{} is expected in JSON, not {}", expected, shown(*this)));
}

long double Json::number() const {
  static_assert(std::numeric_limits<long double>::digits >= 64, "it holds all integers of 64 bits");
  if (const auto* negative = std::get_if<std::int64_t>(&value_)) return *negative;
  if (const auto* natural = std::get_if<std::uint64_t>(&value_)) return *natural;
  return as<double>("a number");
}

std::uint64_t Json::integer(std::int64_t least, std::uint64_t most) const {
  const long double whole = is_number() ? std::trunc(number()) : NAN;
  if (whole >= least && whole < 0)
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(whole));
  if (whole >= 0 && whole <= most) return static_cast<std::uint64_t>(whole);
  refuse(fmt::format("an integer from {} to {}", least, most));
}

std::size_t Json::size() const {
  return is_object() ? items().size() : is_array() ? elements().size() : !is_null();
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : items())
    if (member.key == key) return &member.value;
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* const found = find(key)) return *found;
  refuse(fmt::format("an object with the key \"{}\"", key));
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) *this = object();
  if (const Json* const found = find(key)) return const_cast<Json&>(*found);
  return items().emplace_back(Member{std::string(key), {}}).value;
}

void Json::update(const Json& object) {
  for (const auto& [key, value] : object.items()) (*this)[key] = value;
}

void Json::erase(std::string_view key) {
  std::erase_if(items(), [&](const Member& member) { return member.key == key; });
}

const std::vector<Json>& Json::elements() const {
  static const std::vector<Json> none;
  return is_null() ? none : as<std::vector<Json>>("a list");
}

const Json& Json::element(std::size_t index) const {
  if (!is_array() || index >= size())
    refuse(fmt::format("a list of at least {} elements", index + 1));
  return elements()[index];
}

Json& Json::emplace_back(Json value) {
  if (is_null()) *this = array();
  return const_cast<std::vector<Json>&>(elements()).emplace_back(std::move(value));
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_array() && b.is_array()) return a.elements() == b.elements();
  if (!a.is_object() || !b.is_object()) return a.is_null() ? b.is_null() : (a <=> b) == 0;
  return a.size() == b.size() &&
         std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                    [&](const Json::Member& member, const Json::Member& likely) {
                      // In most cases the order is the same.
                      const Json* const other =
                          member.key == likely.key ? &likely.value : b.find(member.key);
                      return other != nullptr && member.value == *other;
                    });
}

std::partial_ordering operator<=>(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.number() <=> b.number();
  if (a.is_string() && b.is_string()) return a.text() <=> b.text();
  if (a.is_boolean() && b.is_boolean()) return a.get<bool>() <=> b.get<bool>();
  return std::partial_ordering::unordered;
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
  return out << json.dump();
}

}  // namespace ringside

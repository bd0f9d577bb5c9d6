// Json: a JSON value. An object keeps its keys in the order in which they were set.
//
//     Json row = {{"step", 3}, {"loss", 2.5}};    an object: each item is a pair with a text first
//     row["shape"] = {2, 3};                      a list: items of any other kind
//     row.dump()                                  {"step":3,"loss":2.5,"shape":[2,3]}
//     Json::parse(text).at("step").get<int>()     3
//
// nlohmann-json parses texts, and writes texts and numbers. It takes seconds to compile, so only
// json.cpp includes it.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace ringside {

// A text that is not JSON, or a value of another type than the caller asks for.
struct JsonError : Error {
  using Error::Error;
  // Where the syntax of a text is wrong: the line, from 1, and the byte, from 0. Otherwise 0.
  std::size_t line = 0, offset = 0;
};

class Json;

// The form in JSON of a type that Json does not know. A specialisation has one function or both:
//
//     static Json to_json(const T& value);
//     static T from_json(const Json& json);
template <class T>
struct JsonForm;

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;
template <class T>
concept WrittenAsJson = requires(const T& value) {
  JsonForm<T>::to_json(value);
};
template <class T>
concept MadeFromJson = requires(const Json& json) {
  JsonForm<T>::from_json(json);
};
// What a Json becomes without get<T>(). Not a std::optional: it could also hold the Json itself.
template <class T>
concept ReadFromJson = (Arithmetic<T> && !std::same_as<T, char>) || std::same_as<T, std::string> ||
                       (MadeFromJson<T> && !requires(T value) { value.has_value(); });

// What Json::parse() refuses besides what is not JSON.
struct JsonLimits {
  std::string_view what = "the text";  // names the text in errors
  int deepest = 512;                   // levels of nesting, so that nobody's stack overflows
  bool unique_keys = false;            // otherwise the last of two equal keys wins
};

class Json {
 public:
  struct Item;    // of a list in braces
  struct Member;  // of an object: key and value

  Json() noexcept;  // null
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  Json(std::nullptr_t) : Json() {}
  Json(const char* text) : Json(std::string(text)) {}
  Json(std::string_view text) : Json(std::string(text)) {}
  Json(std::string text);
  template <Arithmetic T>
  Json(T number) : Json() {
    if constexpr (std::is_integral_v<T> && !std::same_as<T, bool>)
      number < 0 ? set(static_cast<std::int64_t>(number)) : set(static_cast<std::uint64_t>(number));
    else
      set(number);
  }
  template <WrittenAsJson T>
  Json(const T& value) : Json(JsonForm<T>::to_json(value)) {}
  Json(std::initializer_list<Item> items);

  static Json array(std::initializer_list<Item> items = {});
  static Json object();

  // Throws JsonError if the text is not one JSON value, or has a number that is too large for fp64;
  // and Error if it goes beyond `limits`.
  static Json parse(std::string_view text, const JsonLimits& limits = {});
  // Nothing where parse() throws.
  static std::optional<Json> parse_if_possible(std::string_view text);

  // In one line, or with an indentation of so many spaces. Throws JsonError if a text is not UTF-8.
  // NaN and infinity become null.
  std::string dump(int indent = -1) const { return written(indent, false); }
  // In one line of ASCII. A byte that is not UTF-8 becomes U+FFFD.
  std::string ascii() const { return written(-1, true); }

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const { return is_number_integer() || std::holds_alternative<double>(value_); }
  // Written without a point or an exponent.
  bool is_number_integer() const {
    return is_number_unsigned() || std::holds_alternative<std::int64_t>(value_);
  }
  bool is_number_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<std::vector<Json>>(value_); }
  bool is_object() const { return std::holds_alternative<std::vector<Member>>(value_); }

  // The value as a T. Throws JsonError if it is of another type, or a number out of T's range. An
  // integer type rounds towards zero.
  template <class T>
  T get() const {
    if constexpr (std::same_as<T, Json>)
      return *this;
    else if constexpr (std::same_as<T, bool>)
      return as<bool>("true or false");
    else if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(number());
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(integer(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    else if constexpr (std::same_as<T, std::string>)
      return text();
    else
      return JsonForm<T>::from_json(*this);
  }
  template <ReadFromJson T>
  operator T() const {
    return get<T>();
  }
  const std::string& text() const { return as<std::string>("a text"); }

  // Of a list or an object; 0 for null, otherwise 1.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  // Members of an object, found one by one. at() and a constant value's [] throw JsonError if there
  // is no such key; otherwise [] adds it, and turns null into an object. That ends references to
  // other members: not json["new"] = json["old"].
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // null if there is none
  const Json& at(std::string_view key) const;
  Json& at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }
  const Json& operator[](std::string_view key) const { return at(key); }
  Json& operator[](std::string_view key);
  const Json& operator[](const char* key) const { return at(std::string_view(key)); }
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  template <class T>
  T value(std::string_view key, T if_absent) const {
    return contains(key) ? at(key).get<T>() : std::move(if_absent);
  }
  const std::vector<Member>& items() const { return as<std::vector<Member>>("an object"); }
  // Takes many new keys without a search.
  std::vector<Member>& items() {
    return const_cast<std::vector<Member>&>(std::as_const(*this).items());
  }
  void update(const Json& object);  // adds its members, or replaces those with the same keys
  void erase(std::string_view key);

  // Elements of a list. Indices beyond its end throw JsonError. push_back() turns null into a list.
  const Json& at(std::integral auto index) const { return element(std::size_t(index)); }
  Json& at(std::integral auto index) { return const_cast<Json&>(std::as_const(*this).at(index)); }
  const Json& operator[](std::integral auto index) const { return at(index); }
  Json& operator[](std::integral auto index) { return at(index); }
  const Json& front() const { return at(0); }
  const Json& back() const { return at(size() - 1); }
  Json& back() { return at(size() - 1); }
  const std::vector<Json>& elements() const;  // null has none
  const Json* begin() const { return elements().data(); }
  const Json* end() const { return begin() + elements().size(); }
  Json* begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
  Json* end() { return const_cast<Json*>(std::as_const(*this).end()); }
  void push_back(Json value) { emplace_back(std::move(value)); }
  Json& emplace_back(Json value);  // the new element

  // The order of members does not count, and 1 equals 1.0.
  friend bool operator==(const Json& a, const Json& b);
  friend bool operator==(const Json& a, Arithmetic auto b) { return a == Json(b); }
  // Numbers and texts have an order among themselves; all else is unordered.
  friend std::partial_ordering operator<=>(const Json& a, const Json& b);
  friend auto operator<=>(const Json& a, Arithmetic auto b) { return a <=> Json(b); }
  friend std::ostream& operator<<(std::ostream& out, const Json& json);  // dump()

 private:
  struct Writer;

  // The value, if it is a T: one of the types of value_.
  template <class T>
  const T& as(std::string_view expected) const {
    if (const T* const value = std::get_if<T>(&value_)) return *value;
    refuse(expected);
  }
  [[noreturn]] void refuse(std::string_view expected) const;
  void set(std::variant<bool, std::int64_t, std::uint64_t, double> number);
  long double number() const;                                           // exactly
  std::uint64_t integer(std::int64_t least, std::uint64_t most) const;  // modulo 2^64
  const Json& element(std::size_t index) const;
  std::string written(int indent, bool ascii) const;

  // An integer is an int64_t only if it is negative.
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string,
               std::vector<Json>, std::vector<Member>>
      value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

struct Json::Item {
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Item> && std::convertible_to<T, Json>)
      Item(T&& its_value)
      : value(std::forward<T>(its_value)) {}
  Item(std::initializer_list<Item> items) : value(items) {}
  mutable Json value;  // an initializer_list is constant, and Json(items) moves out of it
};

// ---- Forms of the standard library's types

// A list: std::vector, std::set, std::span, ... Not a text, nor a path.
template <class C>
concept JsonList = !std::constructible_from<std::string, const C&> && requires(const C& container) {
  typename C::value_type;
  container.begin() != container.end();
};
// An object: std::map<std::string, T> and its like.
template <class C>
concept JsonMap = JsonList<C> && std::same_as<typename C::key_type, std::string> && requires {
  typename C::mapped_type;
};

template <JsonList C>
struct JsonForm<C> {
  static Json to_json(const C& container) {
    Json json = JsonMap<C> ? Json::object() : Json::array();
    for (const auto& each : container)
      if constexpr (JsonMap<C>)
        json.items().push_back({each.first, each.second});
      else
        json.push_back(each);
    return json;
  }
  static C from_json(const Json& json) requires requires(C container) {
    container.insert(container.end(), std::declval<typename C::value_type>());
  }
  {
    C container;
    if constexpr (JsonMap<C>)
      for (const auto& [key, value] : json.items())
        container.emplace(key, value.template get<typename C::mapped_type>());
    else
      for (const Json& each : json)
        container.insert(container.end(), each.template get<typename C::value_type>());
    return container;
  }
};

template <class T, std::size_t N>
struct JsonForm<T[N]> {
  static Json to_json(const T (&array)[N]) { return std::vector<T>(array, array + N); }
};

// A list of two.
template <class A, class B>
struct JsonForm<std::pair<A, B>> {
  static Json to_json(const std::pair<A, B>& pair) {
    return Json::array({pair.first, pair.second});
  }
  static std::pair<A, B> from_json(const Json& json) {
    return {json.at(0).get<std::remove_const_t<A>>(), json.at(1).get<B>()};
  }
};

// null for nothing.
template <class T>
struct JsonForm<std::optional<T>> {
  static Json to_json(const std::optional<T>& value) { return value ? Json(*value) : Json(); }
  static std::optional<T> from_json(const Json& json) {
    return json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
  }
};

}  // namespace ringside

#include "base/json.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::tests;

namespace {

// The message where parse() throws, with the offset of an error of syntax.
std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    Json::parse(text, limits);
  } catch (const JsonError& error) {
    return fmt::format("{} [{}:{}]", error.what(), error.line, error.offset);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// A type with a form of its own.
struct Edge {
  int from = 0, to = 0;
};

}  // namespace

template <>
struct ringside::JsonForm<Edge> {
  static Json to_json(const Edge& edge) { return {edge.from, edge.to}; }
  static Edge from_json(const Json& json) { return {json.at(0), json.at(1)}; }
};

TEST_CASE("JSON keeps the order of keys, in one line and indented") {
  Json json = {{"b", 1}, {"a", {{"y", nullptr}, {"x", true}}}, {"list", {1, "two", 3.0}}};
  json["0"] = Json::array();
  json["empty"] = Json::object();
  CHECK(json.dump() == R"({"b":1,"a":{"y":null,"x":true},"list":[1,"two",3.0],"0":[],"empty":{}})");
  CHECK(Json::parse(json.dump()).dump() == json.dump());
  CHECK(Json({{"a", {1, 2}}}).dump(2) == "{\n  \"a\": [\n    1,\n    2\n  ]\n}");
  json["b"] = 2;  // stays in its place
  json.erase("a");
  json.update({{"b", 3}, {"new", 4}});
  CHECK(json.dump() == R"({"b":3,"list":[1,"two",3.0],"0":[],"empty":{},"new":4})");
}

TEST_CASE("a list in braces is an object if all its items are pairs with a text first") {
  CHECK(Json({{"a", 1}, {"b", 2}}).is_object());
  CHECK(Json({{"a", 1}, {2, "b"}}).is_array());
  CHECK(Json({"a", "b"}).dump() == R"(["a","b"])");
  CHECK(Json::array({{"a", "b"}}).dump() == R"([["a","b"]])");
  CHECK(Json().is_null());
}

TEST_CASE("whole numbers of 64 bits are exact, and others keep all their digits") {
  const Json json = Json::parse("[18446744073709551615,-9223372036854775808,0,-0,1e2,0.1]");
  CHECK(json[0].get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK(json[1].get<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(json[0].is_number_unsigned());
  CHECK(json[1].is_number_integer());
  CHECK_FALSE(json[1].is_number_unsigned());
  CHECK_FALSE(json[4].is_number_integer());
  CHECK(json[4] == 100);
  CHECK(json.dump() == "[18446744073709551615,-9223372036854775808,0,0,100.0,0.1]");
  for (const double number : {1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5, 1e16})
    CHECK(Json::parse(Json(number).dump()).get<double>() == number);
  CHECK(Json(std::nan("")).dump() == "null");
  CHECK(Json(7) == Json(7.0));
  CHECK(Json(7U) == Json(7L));
  CHECK(Json(-1) < Json(0));
  CHECK(Json(std::numeric_limits<std::uint64_t>::max()) > Json(-1));
  CHECK_FALSE(Json("7") == Json(7));
  CHECK_FALSE(Json("7") < Json(7));
}

TEST_CASE("a number out of the range of a type is refused") {
  CHECK(Json(2.9).get<int>() == 2);
  CHECK_THROWS_WITH_AS(Json(300).get<std::uint8_t>(),
                       "an integer from 0 to 255 is expected in JSON, not 300", JsonError);
  CHECK_THROWS_AS(Json(-1).get<std::size_t>(), JsonError);
  CHECK_THROWS_AS(Json(1e300).get<std::int64_t>(), JsonError);
  CHECK_THROWS_AS(Json(1e300).get<std::uint64_t>(), JsonError);
  CHECK_THROWS_AS(Json(std::nan("")).get<int>(), JsonError);
  CHECK_THROWS_AS(Json(std::numeric_limits<std::uint64_t>::max()).get<std::int64_t>(), JsonError);
}

TEST_CASE("texts have escapes and UTF-8") {
  const Json json = Json::parse(R"("a\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude00")");
  CHECK(json.text() == std::string("a\"\\/\b\f\n\r\t\0\xc3\xa9\xf0\x9f\x98\x80", 16));
  CHECK(json.dump() == "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\xc3\xa9\xf0\x9f\x98\x80\"");
  CHECK(json.ascii() == R"("a\"\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude00")");
  CHECK(Json("\xff").ascii() == R"("\ufffd")");
  CHECK_THROWS_WITH_AS(Json({{"a", "\xff"}}).dump(),
                       R"(JSON has texts of UTF-8 alone, not {"a":"\ufffd"})", JsonError);
  CHECK(contains(refusal("\"\xff\""), "ill-formed UTF-8"));
  CHECK(contains(refusal(R"("\ud83d")"), "surrogate"));
  CHECK(contains(refusal("\"a\nb\""), "control character"));
}

// What is said after the place is the library's, and differs from one release to the next.
TEST_CASE("an error of syntax says where it is and what is expected") {
  CHECK(contains(refusal(""), "parse error at line 1, column 1: "));
  const std::string refused = refusal("{\n\"a\": [1,\n  2,]}");
  CHECK(contains(refused, "parse error at line 3, column 5: "));
  for (const char* part : {"unexpected ']'", "expected '['", "[3:15]"})
    CHECK(contains(refused, part));
  CHECK(contains(refusal("{} {}"), "parse error at line 1, column 4: "));
  for (const char* text : {"nul", "[1", "{1:2}", "{\"a\"}", "01", "+1", "1.", "'a'", "// 1", "NaN"})
    CHECK(contains(refusal(text), "parse error at line 1"));
  CHECK(refusal("[1e999]", {.what = "a.json"}) ==
        "a.json has a number that is too large for fp64 [0:0]");
  CHECK_FALSE(Json::parse_if_possible("[1"));
  CHECK(Json::parse_if_possible(" [1] \n").value() == Json::array({1}));
}

TEST_CASE("a NUL byte after the value is refused, like anything else") {
  using namespace std::string_literals;
  CHECK(contains(refusal("[1]\n \0"s), "parse error at line 2, column 2: "));
  CHECK(contains(refusal("[1]\n \0"s), "unexpected NUL byte"));
  CHECK(contains(refusal("{}\0{"s), "unexpected NUL byte"));
  CHECK(contains(refusal("[1,\0]"s), "parse error at line 1, column 4"));
  CHECK(contains(refusal("\"a\0b\""s), "parse error at line 1, column 3"));
}

TEST_CASE("of two equal keys the last wins, or both are refused") {
  const char* const text = R"({"a":1,"b":2,"a":3,"c":{"a":4}})";
  CHECK(Json::parse(text).dump() == R"({"a":3,"b":2,"c":{"a":4}})");
  CHECK(refusal(text, {.what = "x.json", .unique_keys = true}) == "x.json names \"a\" twice");
}

TEST_CASE("deep nesting is refused before it overflows the stack") {
  const auto nested = [](int levels) {
    const auto count = static_cast<std::size_t>(levels);
    return std::string(count, '[') + std::string(count, ']');
  };
  Json deep = Json::parse(nested(512));
  CHECK(deep.dump() == nested(512));
  CHECK(Json(deep) == deep);
  CHECK(refusal(nested(513)) == "the text is nested more than 512 levels deep");
  CHECK(refusal(std::string(1'000'000, '[')) == "the text is nested more than 512 levels deep");
  CHECK(refusal(R"({"a":{"b":[]}})", {.deepest = 2}) ==
        "the text is nested more than 2 levels deep");
  CHECK(refusal(R"({"a":{"b":0}})", {.deepest = 2}) == "accepted");
}

TEST_CASE("objects are equal whatever the order of their keys") {
  CHECK(Json::parse(R"({"a":1,"b":[2]})") == Json::parse(R"({"b":[2],"a":1.0})"));
  CHECK(Json::parse(R"({"a":1,"b":2})") != Json::parse(R"({"a":1,"c":2})"));
  CHECK(Json::parse("[1,2]") != Json::parse("[2,1]"));
  CHECK(Json() == Json(nullptr));
  CHECK(Json(false) != Json());
}

TEST_CASE("what is not there, and what has another type, is an error with words") {
  const Json json = {{"a", "x"}, {"list", {1, 2}}};
  CHECK(json.value("a", std::string()) == "x");
  CHECK(json.value("b", 5) == 5);
  CHECK(json.find("b") == nullptr);
  CHECK_THROWS_WITH_AS(json.at("b"),
                       "an object with the key \"b\" is expected in JSON, not "
                       "{\"a\":\"x\",\"list\":[1,2]}",
                       JsonError);
  CHECK_THROWS_WITH_AS(json["list"][2],
                       "a list of at least 3 elements is expected in JSON, not [1,2]", JsonError);
  CHECK_THROWS_WITH_AS(json["a"].get<int>(),
                       "an integer from -2147483648 to 2147483647 is expected in JSON, not \"x\"",
                       JsonError);
  CHECK_THROWS_WITH_AS(json["list"].get<std::string>(), "a text is expected in JSON, not [1,2]",
                       JsonError);
  CHECK_THROWS_AS(json.begin(), JsonError);
  CHECK_THROWS_AS(json["list"].items(), JsonError);
  for (const Json& each : Json()) FAIL(each.dump());
}

TEST_CASE("types of the standard library and of one's own have forms in JSON") {
  const std::vector<std::pair<std::string, std::optional<int>>> pairs{{"a", 1}, {"b", {}}};
  const int array[] = {5, 6};
  const Json json = {{"pairs", pairs},
                     {"map", std::map<std::string, double>{{"x", 0.5}}},
                     {"set", std::set<int>{3, 1}},
                     {"array", array},
                     {"edges", std::vector<Edge>{{1, 2}, {3, 4}}}};
  CHECK(json.dump() == R"({"pairs":[["a",1],["b",null]],"map":{"x":0.5},"set":[1,3],)"
                       R"("array":[5,6],"edges":[[1,2],[3,4]]})");
  CHECK(json["pairs"].get<std::remove_const_t<decltype(pairs)>>() == pairs);
  const std::set<int> set = json["set"];
  CHECK(set == std::set<int>{1, 3});
  CHECK(json["map"].get<std::map<std::string, double>>().at("x") == 0.5);
  CHECK(json["edges"].get<std::vector<Edge>>()[1].to == 4);
}

#include "transformer/checkpoint/safetensors.hpp"
#include "base/read_file.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/text.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

template <class T>
ArrayView view(std::string name, StoredType type, std::vector<std::int64_t> shape,
               const std::vector<T>& values) {
  return {std::move(name), type, std::move(shape), std::as_bytes(std::span(values))};
}

template <class T>
std::vector<T> read(SafetensorsFile& file, const std::string& name) {
  std::vector<T> values(file.entry(name).bytes() / sizeof(T));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

// The error message for a file with these bytes, without the path; "accepted" if there is none.
std::string refusal(const std::string& bytes) {
  TemporaryDirectory directory;
  const auto path = directory.write("file", bytes);
  try {
    SafetensorsFile file(path);
  } catch (const Error& error) {
    const std::string message = error.what(),
                      start = "cannot read " + path.string() + " as safetensors: ";
    REQUIRE(message.starts_with(start));
    return message.substr(start.size());
  }
  return "accepted";
}

// The same for a header with this entry for the array "a", and four bytes of data.
std::string refusal_of(const std::string& array) {
  return refusal(file_of("{\"a\":" + array + "}", "1234"));
}

}  // namespace

TEST_CASE("arrays are read as they were written") {
  TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  const std::vector<float> weights = {1.5f, -2, 3e-40f, 4, 5, 6};
  const std::vector<double> norm = {0.1};
  const std::vector<std::int32_t> ids = {-7, 8};
  write_safetensors(path,
                    {view("b.weight", StoredType::f32, {2, 3}, weights),
                     view("a", StoredType::f64, {}, norm), view("ids", StoredType::i32, {2}, ids),
                     view("none", StoredType::f32, {0, 5}, std::vector<float>())},
                    {{"format", "pt"}});

  SafetensorsFile file(path);
  CHECK(file.entries().size() == 4);
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.entry("b.weight").shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.entry("a").shape.empty());
  CHECK(read<double>(file, "a") == norm);
  CHECK(read<float>(file, "b.weight") == weights);
  CHECK(read<std::int32_t>(file, "ids") == ids);
  CHECK(read<float>(file, "none").empty());
  // No temporary file is left.
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("the file has the bytes that the format prescribes") {
  TemporaryDirectory directory;
  const auto path = directory.path() / "f";
  write_safetensors(path, {view("x", StoredType::f32, {1}, std::vector<float>{1.0f})});
  const std::string bytes = read_file(path);
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  CHECK(bytes == file_of(header + std::string((8 - header.size() % 8) % 8, ' '),
                         std::string("\0\0\x80\x3f", 4)));
}

TEST_CASE("a file names what was changed in it after it was written") {
  TemporaryDirectory directory;
  const auto path = directory.path() / "f";
  const std::vector<float> values = {1, 2};
  const auto changes_after = [&](const std::string& from, const std::string& to) {
    write_safetensors(
        path, {view("x", StoredType::f32, {2}, values), view("y", StoredType::f32, {1, 2}, values)},
        {{"step", "12"}, {"format", "pt"}});
    std::string bytes = read_file(path);
    if (!from.empty()) bytes.replace(bytes.rfind(from), from.size(), to);
    directory.write("f", bytes);
    return SafetensorsFile(path).changes();
  };
  using Names = std::vector<std::string>;
  CHECK(changes_after("", "") == Names{});
  CHECK(changes_after("\"12\"", "\"13\"") == Names{"metadata step"});
  CHECK(changes_after(std::string("\0\0\x80\x3f", 4), std::string("\0\0\x80\x7f", 4)) ==
        Names{"y"});
  CHECK(changes_after("[1,2]", "[2,1]") == Names{"y"});
  CHECK(changes_after("\"step\"", "\"stop\"") ==
        Names{"metadata stop", "metadata step, which is missing"});
  CHECK(changes_after("\"sha256\":", "\"sha000\":") == Names{});  // as before there were checksums
}

TEST_CASE("after a failed write the old file is unchanged") {
  TemporaryDirectory directory;
  const auto path = directory.write("f", "old");
  const std::vector<float> values = {1, 2};
  CHECK_THROWS_WITH_AS(write_safetensors(path, {view("x", StoredType::f32, {3}, values)}),
                       "the array 'x' has shape [3] but 8 bytes", Error);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {view("x", StoredType::f32, {2}, values),
                                                view("x", StoredType::f32, {2}, values)}),
                       "an array named 'x' cannot be stored twice", Error);
  CHECK(std::filesystem::file_size(path) == 3);
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
  const std::string nowhere = (directory.path() / "nowhere" / "f").string();
  CHECK_THROWS_WITH_AS(write_safetensors(nowhere, {}),
                       ("cannot write " + nowhere + ": No such file or directory").c_str(), Error);
}

TEST_CASE("reading a missing array or into a buffer of the wrong size is refused") {
  TemporaryDirectory directory;
  const auto path = directory.path() / "f";
  write_safetensors(path, {view("x", StoredType::f32, {1}, std::vector<float>{1.0f})});
  SafetensorsFile file(path);
  CHECK_THROWS_WITH_AS(file.entry("y"), (path.string() + " holds no array named 'y'").c_str(),
                       Error);
  std::vector<std::byte> room(5);
  CHECK_THROWS_WITH_AS(file.read("x", room),
                       ("'x' in " + path.string() + " has 4 bytes, but the buffer has 5").c_str(),
                       Error);
}

TEST_CASE("a file with wrong lengths is refused with the reason") {
  CHECK(refusal("") == "it has 0 bytes, too few for the header's length");
  CHECK(refusal("1234567") == "it has 7 bytes, too few for the header's length");
  CHECK(refusal(file_of("{}", "").substr(0, 9)) ==
        "its header claims 2 bytes, but only 1 follow: it is cut short or not a safetensors file");
  CHECK(refusal("\xff\xff\xff\xff\xff\xff\xff\xff{}") ==
        "its header claims 18446744073709551615 bytes, but only 2 follow: it is cut short or not a "
        "safetensors file");
  CHECK(refusal(file_of(std::string(100'000'001, ' '), "")) ==
        "its header claims 100000001 bytes, more than the format's limit of 100000000");
  const std::string array = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(refusal(file_of(array, "12345678")) == "accepted");
  CHECK(refusal(file_of(array, "1234")) ==
        "its arrays take 8 bytes, but only 4 follow the header: it was cut short");
  CHECK(refusal(file_of(array, "123456789")) == "1 bytes follow the last array and belong to none");
}

TEST_CASE("an invalid header is refused with the reason") {
  const std::string not_json = "its header is not JSON: the error is in line 1, at byte ";
  CHECK(refusal(file_of("", "")) == not_json + "0");
  CHECK(refusal(file_of("{\"a\"", "")) == not_json + "4");
  CHECK(refusal(file_of("{\"\xff\":1}", "")) == not_json + "2");
  CHECK(refusal(file_of(std::string("{}\0{}", 5), "")) == not_json + "2");
  CHECK(refusal(file_of(std::string("{}  \0", 5), "")) == not_json + "4");
  CHECK(refusal(file_of("{}  ", "")) == "accepted");  // as the format pads headers
  CHECK(refusal(file_of(R"({"a":1e999})", "")) ==
        "its header has a number that is too large for fp64");
  CHECK(refusal(file_of("[1]", "")) == "its header is not a JSON object");
  CHECK(refusal(file_of(std::string(1'000'000, '['), "")) ==
        "its header is nested more than 4 levels deep");
  CHECK(refusal(file_of(R"({"__metadata__":{"a":1}})", "")) ==
        "its __metadata__ is not an object of strings");
  const std::string twice = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  CHECK(refusal(file_of(twice, "1234")) == "its header names \"a\" twice");
  CHECK(refusal_of("1") == "its header does not give \"a\" a dtype, a shape and data_offsets");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[1]})") ==
        "its header does not give \"a\" a dtype, a shape and data_offsets");
}

TEST_CASE("an inconsistent array is refused with the reason") {
  CHECK(refusal_of(R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})") ==
        "\"a\" is of type \"F99\", which Ringside does not read");
  CHECK(refusal_of(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})") ==
        "\"a\" is of type 7, which Ringside does not read");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})") ==
        "the shape of \"a\" is [-1], not a list of sizes");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})") ==
        "the shape of \"a\" is [1.0], not a list of sizes");
  CHECK(refusal_of(R"({"dtype":"F32","shape":4,"data_offsets":[0,4]})") ==
        "the shape of \"a\" is 4, not a list of sizes");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})") ==
        "the data_offsets of \"a\" are [4,0], not a beginning and an end");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})") ==
        "the data_offsets of \"a\" are [0,4,8], not a beginning and an end");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]})") ==
        "the data_offsets of \"a\" are [0,1.8446744073709552e+19], not a beginning and an end");
  CHECK(refusal_of(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})") ==
        "\"a\" has shape [2] of F32, which does not fit the 4 bytes of its data_offsets");
  // 2^31 x 2^31 x 4 bytes are 2^64, which overflows to 0.
  CHECK(refusal_of(R"({"dtype":"F32","shape":[2147483648,2147483648],"data_offsets":[0,0]})") ==
        "\"a\" has shape [2147483648,2147483648] of F32, which does not fit the 0 bytes of its "
        "data_offsets");
}

TEST_CASE("arrays that overlap or leave gaps are refused with the reason") {
  const auto two = [](const char* a, const char* b) {
    const std::string header = std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") +
                               a + R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
    return refusal(file_of(header, "12345678"));
  };
  CHECK(two("[0,4]", "[4,8]") == "accepted");
  CHECK(two("[4,8]", "[0,4]") == "accepted");
  CHECK(two("[0,4]", "[2,6]") ==
        "\"b\" begins at byte 2, inside the array before it, which ends at 4");
  CHECK(two("[0,4]", "[0,4]") ==
        "\"b\" begins at byte 0, inside the array before it, which ends at 4");
  CHECK(two("[0,4]", "[5,9]") == "the 1 bytes before \"b\" belong to no array");
  CHECK(two("[2,6]", "[6,10]") == "the 2 bytes before \"a\" belong to no array");
}

TEST_CASE("a damaged file causes no other failure than an Error") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"F64","shape":[1],"data_offsets":[16,24]}})";
  const std::string whole = file_of(header, std::string(24, 'x'));
  REQUIRE(refusal(whole) == "accepted");
  int accepted = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (std::uint64_t flips = 1 + random_below(3, 1, i, 0); flips > 0; --flips) {
      damaged[random_below(damaged.size(), 1, i, 2 * flips)] =
          static_cast<char>(random_bits(1, i, 2 * flips + 1));
    }
    if (random_below(4, 1, i, 99) == 0) damaged.resize(random_below(damaged.size(), 1, i, 100));
    accepted += refusal(damaged) == "accepted";  // any other exception fails the test
  }
  CHECK(accepted > 0);  // damage to the numbers cannot be detected
  CHECK(accepted < 1500);
}

TEST_CASE("a directory and a missing file are refused") {
  TemporaryDirectory directory;
  const std::string base = directory.path().string();
  CHECK_THROWS_WITH_AS(SafetensorsFile(directory.path()),
                       ("cannot read " + base + " as safetensors: it is a directory").c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(
      SafetensorsFile(directory.path() / "no"),
      ("cannot read " + base + "/no as safetensors: No such file or directory").c_str(), Error);
}

#include "transformer/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/sha256.hpp"
#include "base/text/printable.hpp"
#include "transformer/checkpoint/strict_json.hpp"

namespace ringside::transformer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and bytes are not swapped here");

struct TypeName {
  StoredType type;
  const char* name;
  std::size_t bytes;
};

constexpr std::array<TypeName, 7> type_names = {{{StoredType::f32, "F32", 4},
                                                 {StoredType::f64, "F64", 8},
                                                 {StoredType::f16, "F16", 2},
                                                 {StoredType::bf16, "BF16", 2},
                                                 {StoredType::i32, "I32", 4},
                                                 {StoredType::i64, "I64", 8},
                                                 {StoredType::u8, "U8", 1}}};

constexpr const char* checksums_key = "sha256";  // in the metadata

// The checksum of an array begins with what the header says about it.
Sha256 hash_beginning(StoredType type, const std::vector<std::int64_t>& shape) {
  Sha256 hash;
  hash.add(fmt::format("{} [{}]", safetensors_name(type), fmt::join(shape, ", ")));
  return hash;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::map<std::string, std::string> checksums_of(const Metadata& metadata) {
  std::map<std::string, std::string> checksums;
  for (const auto& [key, value] : metadata)
    if (key != checksums_key) checksums["metadata " + key] = hexadecimal(sha256(value));
  return checksums;
}

constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit

const TypeName& name_of(StoredType type) {
  return *std::find_if(type_names.begin(), type_names.end(),
                       [type](const TypeName& known) { return known.type == type; });
}

// The bytes of an array of this shape; empty if they do not fit in 64 bits.
std::optional<std::uint64_t> bytes_of_shape(const std::vector<std::int64_t>& shape,
                                            StoredType type) {
  std::uint64_t bytes = bytes_of(type);
  for (const std::int64_t extent : shape) {
    const auto factor = static_cast<std::uint64_t>(extent);
    if (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor)
      return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

std::string header_of(const std::vector<ArrayView>& arrays, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const ArrayView& array : arrays) {
    require(!header.contains(array.name) && array.name != "__metadata__",
            "an array named '{}' cannot be stored twice", array.name);
    const auto bytes = bytes_of_shape(array.shape, array.type);
    require(bytes.has_value(), "the array '{}' has shape [{}], which is too large", array.name,
            fmt::join(array.shape, ", "));
    const std::uint64_t end = offset + *bytes;
    header[array.name] = {{"dtype", safetensors_name(array.type)},
                          {"shape", array.shape},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the numbers that follow
  return text;
}

// A JSON list of non-negative integers; empty if it is anything else.
std::optional<std::vector<std::int64_t>> non_negative_integers(const Json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const Json& item : list) {
    constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > largest) return std::nullopt;
    numbers.push_back(item.get<std::int64_t>());
  }
  return numbers;
}

SafetensorsFile::Entry entry_of(const std::string& name, const Json& json) {
  require(json.is_object() && json.contains("dtype") && json.contains("shape") &&
              json.contains("data_offsets"),
          "its header does not give {} a dtype, a shape and data_offsets", shown(name));
  const auto known = std::find_if(type_names.begin(), type_names.end(),
                                  [&](const TypeName& t) { return json["dtype"] == t.name; });
  require(known != type_names.end(), "{} is of type {}, which Ringside does not read", shown(name),
          shown(json["dtype"]));
  const auto shape = non_negative_integers(json["shape"]);
  require(shape.has_value(), "the shape of {} is {}, not a list of sizes", shown(name),
          shown(json["shape"]));
  const auto offsets = non_negative_integers(json["data_offsets"]);
  require(offsets && offsets->size() == 2 && (*offsets)[0] <= (*offsets)[1],
          "the data_offsets of {} are {}, not a beginning and an end", shown(name),
          shown(json["data_offsets"]));

  SafetensorsFile::Entry entry{known->type, *shape, static_cast<std::uint64_t>((*offsets)[0]),
                               static_cast<std::uint64_t>((*offsets)[1])};
  require(bytes_of_shape(entry.shape, entry.type) == entry.bytes(),
          "{} has shape {} of {}, which does not fit the {} bytes of its data_offsets", shown(name),
          shown(json["shape"]), known->name, entry.bytes());
  return entry;
}

// The arrays must fill the file exactly, without overlap and without gaps.
void check_layout(const std::map<std::string, SafetensorsFile::Entry>& entries,
                  std::uint64_t data_bytes) {
  std::vector<std::pair<const SafetensorsFile::Entry*, const std::string*>> by_offset;
  for (const auto& [name, entry] : entries) by_offset.emplace_back(&entry, &name);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  std::uint64_t reached = 0;
  for (const auto& [entry, name] : by_offset) {
    require(entry->begin >= reached,
            "{} begins at byte {}, inside the array before it, which ends at {}", shown(*name),
            entry->begin, reached);
    require(entry->begin == reached, "the {} bytes before {} belong to no array",
            entry->begin - reached, shown(*name));
    reached = entry->end;
  }
  require(reached <= data_bytes,
          "its arrays take {} bytes, but only {} follow the header: it was cut short", reached,
          data_bytes);
  require(reached == data_bytes, "{} bytes follow the last array and belong to none",
          data_bytes - reached);
}

Metadata metadata_of(const Json& json) {
  const bool strings = json.is_object() &&
                       std::all_of(json.items().begin(), json.items().end(),
                                   [](const Json::Member& item) { return item.value.is_string(); });
  require(strings, "its __metadata__ is not an object of strings");
  return json.get<Metadata>();
}

}  // namespace

std::size_t bytes_of(StoredType type) {
  return name_of(type).bytes;
}

const char* safetensors_name(StoredType type) {
  return name_of(type).name;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<ArrayView> arrays, const Metadata& metadata)
    : arrays_(std::move(arrays)),
      metadata_(metadata),
      checksums_(checksums_of(metadata)),
      file_(path) {
  for (const ArrayView& array : arrays_) checksums_[array.name] = hexadecimal(Digest{});
  const std::string text = header();
  const std::uint64_t length = text.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(text);
}

std::string SafetensorsWriter::header() const {
  if (metadata_.empty()) return header_of(arrays_, metadata_);
  Metadata all = metadata_;
  all[checksums_key] = Json(checksums_).ascii();
  return header_of(arrays_, all);
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  require(written_ < arrays_.size() && arrays_[written_].name == name,
          "the array '{}' was passed to write(), but '{}' comes next", name,
          written_ < arrays_.size() ? arrays_[written_].name : "nothing");
  const ArrayView& array = arrays_[written_++];
  require(bytes_of_shape(array.shape, array.type) == bytes.size(),
          "the array '{}' has shape [{}] but {} bytes", name, fmt::join(array.shape, ", "),
          bytes.size());
  file_.write(bytes);
  Sha256 hash = hash_beginning(array.type, array.shape);
  hash.add(as_text(bytes));
  checksums_[name] = hexadecimal(hash.digest());
}

void SafetensorsWriter::commit() {
  require(written_ == arrays_.size(), "only {} of {} arrays were written", written_,
          arrays_.size());
  file_.rewrite(sizeof(std::uint64_t), header());
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<ArrayView>& arrays,
                       const Metadata& metadata) {
  SafetensorsWriter file(path, arrays, metadata);
  for (const ArrayView& array : arrays) file.write(array.name, array.bytes);
  file.commit();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  try {
    errno = 0;
    require(!std::filesystem::is_directory(path), "it is a directory");
    file_.open(path, std::ios::binary);
    require(file_.is_open(), "{}", std::strerror(errno));
    file_.seekg(0, std::ios::end);
    const auto size = static_cast<std::uint64_t>(file_.tellg());
    file_.seekg(0);

    std::uint64_t length = 0;
    require(size >= sizeof length, "it has {} bytes, too few for the header's length", size);
    file_.read(reinterpret_cast<char*>(&length), sizeof length);
    require(
        length <= size - sizeof length,
        "its header claims {} bytes, but only {} follow: it is cut short or not a safetensors file",
        length, size - sizeof length);
    require(length <= longest_header,
            "its header claims {} bytes, more than the format's limit of {}", length,
            longest_header);

    std::string text(length, '\0');
    file_.read(text.data(), static_cast<std::streamsize>(length));
    require(file_.good(), "its header cannot be read");
    const Json header = parse_strictly(text, "its header", 4);
    require(header.is_object(), "its header is not a JSON object");
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__")
        metadata_ = metadata_of(value);
      else
        entries_.emplace(name, entry_of(name, value));
    }
    data_start_ = sizeof length + length;
    check_layout(entries_, size - data_start_);
  } catch (const Error& error) {
    fail("cannot read {} as safetensors: {}", path.string(), error.what());
  }
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), "{} holds no array named '{}'", path_.string(), name);
  return found->second;
}

void SafetensorsFile::read(const std::string& name, std::span<std::byte> into) {
  const Entry& stored = entry(name);
  require(into.size() == stored.bytes(), "'{}' in {} has {} bytes, but the buffer has {}", name,
          path_.string(), stored.bytes(), into.size());
  read_part(name, 0, into);
}

void SafetensorsFile::read_part(const std::string& name, std::uint64_t first,
                                std::span<std::byte> into) {
  const Entry& stored = entry(name);
  require(first <= stored.bytes() && into.size() <= stored.bytes() - first,
          "'{}' in {} has {} bytes, but bytes {} to {} were asked for", name, path_.string(),
          stored.bytes(), first, first + into.size());
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(data_start_ + stored.begin + first));
  file_.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
  require(file_.good(), "'{}' cannot be read from {}: the file has changed since it was opened",
          name, path_.string());
}

std::vector<std::string> SafetensorsFile::changes() {
  const auto stored = metadata_.find(checksums_key);
  if (stored == metadata_.end()) return {};
  auto now = checksums_of(metadata_);
  std::vector<std::byte> buffer(1 << 20);
  for (const auto& [name, array] : entries_) {
    Sha256 hash = hash_beginning(array.type, array.shape);
    for (std::uint64_t first = 0; first < array.bytes(); first += buffer.size()) {
      const auto piece =
          std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), array.bytes() - first));
      read_part(name, first, piece);
      hash.add(as_text(piece));
    }
    now[name] = hexadecimal(hash.digest());
  }
  const auto json = Json::parse_if_possible(stored->second);
  if (!json || !json->is_object()) return {fmt::format("metadata {}", checksums_key)};
  const std::map<std::string, Json> then = *json;
  std::vector<std::string> changed;
  for (const auto& [name, checksum] : now)
    if (!then.contains(name) || then.at(name) != checksum) changed.push_back(printable_line(name));
  for (const auto& [name, checksum] : then)
    if (!now.contains(name)) changed.push_back(printable_line(name) + ", which is missing");
  return changed;
}

}  // namespace ringside::transformer

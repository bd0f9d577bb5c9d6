// Named arrays in a file: the safetensors format, read as what it is, input from outside.
//
//     8 bytes         `length` bytes                                                      the rest
//     ┌─────────┬───────────────────────────────────────────────────────────────────┬────────────────────────────────┐
//     │ length  │ {"model.norm.weight": {"dtype": "F32", "shape": [128],            │ the arrays' numbers, row-major │
//     │ (u64le) │   "data_offsets": [0, 512]}, ..., "__metadata__": {...}}          │ and little-endian, no gaps     │
//     └─────────┴───────────────────────────────────────────────────────────────────┴────────────────────────────────┘
//
// The format's own description: the README of huggingface/safetensors. Offsets count from the end
// of the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.hpp"

namespace ringside::transformer {

// The element types of the format that Ringside knows of. More are read over where they are not
// asked for.
enum class StoredType { f32, f64, f16, bf16, i32, i64, u8 };

std::size_t bytes_of(StoredType type);          // per element
const char* safetensors_name(StoredType type);  // as the header spells it: "F32"

// One array to be written. `bytes` must stay alive until it is.
struct ArrayView {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

// Writes the arrays in the order given, beside `path`, and renames: whoever reads `path` finds the
// old file or the whole new one. Throws Error where an array's bytes do not fit its shape, a name
// comes twice, or the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const std::vector<ArrayView>& arrays,
                       const Metadata& metadata = {});

// The same, an array at a time, so that not all of them need to be in memory: their bytes are given
// one after the other, in the order in which the constructor was told of them (where `bytes` may be
// empty).
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<ArrayView> arrays,
                    const Metadata& metadata = {});
  void write(const std::string& name, std::span<const std::byte> bytes);
  void commit();  // renames; without it nothing is left behind

 private:
  std::vector<ArrayView> arrays_;
  std::size_t written_ = 0;
  AtomicFile file_;
};

// A file opened for reading. The header is read and checked whole by the constructor; arrays are
// read one by one when asked for, so that no more than one copy of a large model is ever in memory.
class SafetensorsFile {
 public:
  struct Entry {
    StoredType type = StoredType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header
    std::uint64_t bytes() const { return end - begin; }
  };

  // Throws Error, with the path and what is wrong, where the file cannot be read or says anything
  // about itself that is not so: a header longer than the file, no JSON, a name twice, a type that
  // is not known, offsets that do not fit the shape, that overlap, leave a gap, or do not end where
  // the file does.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

  // Throws Error naming the file if it holds no such array.
  const Entry& entry(const std::string& name) const;

  // Reads one array into `into`, which must have exactly entry(name).bytes() bytes.
  void read(const std::string& name, std::span<std::byte> into);

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t data_start_ = 0;
  std::map<std::string, Entry> entries_;
  Metadata metadata_;
};

}  // namespace ringside::transformer

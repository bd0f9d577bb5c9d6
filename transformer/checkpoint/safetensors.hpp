// Safetensors: named arrays in a file. Files are untrusted input, so every length is checked.
//
//     8 bytes         `length` bytes                              the rest
//     ┌──────────┬────────────────────────────────────────────┬───────────────────────────────┐
//     │ length   │ {"model.norm.weight":                      │ the numbers of all arrays,    │
//     │ (u64,    │    {"dtype": "F32", "shape": [128],        │ row-major, little-endian,     │
//     │ little-  │     "data_offsets": [0, 512]}, ...,        │ without gaps                  │
//     │ endian)  │  "__metadata__": {"format": "pt", ...}}    │                               │
//     └──────────┴────────────────────────────────────────────┴───────────────────────────────┘
//
// data_offsets count from the end of the header. Source: the README of huggingface/safetensors.
//
// In files that Ringside writes with metadata, the entry "sha256" of __metadata__ holds a checksum
// of every array and of every other entry: {"model.norm.weight": "9f86d0...", "metadata step":
// "4ec959...", ...}.
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

// The element types that Ringside knows. A file with another type is refused.
enum class StoredType { f32, f64, f16, bf16, i32, i64, u8 };

std::size_t bytes_of(StoredType type);          // per element
const char* safetensors_name(StoredType type);  // as the header spells it: "F32"

// One array to be written. The memory of `bytes` must stay valid until then.
struct ArrayView {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

// Writes the arrays in the given order to a temporary file and renames it to `path`, so a reader
// finds the old file or the complete new one. Throws Error if an array's bytes do not fit its
// shape, a name is repeated, or the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const std::vector<ArrayView>& arrays,
                       const Metadata& metadata = {});

// The same, one array at a time, so that only one needs to be in memory. The constructor takes all
// names and shapes (`bytes` may be empty). Then write() takes the bytes of each, in the same order.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<ArrayView> arrays,
                    const Metadata& metadata = {});
  void write(const std::string& name, std::span<const std::byte> bytes);
  void commit();  // renames the file; without it, the destructor deletes what was written

 private:
  std::string header() const;  // of the same length before and after the checksums are known

  std::vector<ArrayView> arrays_;
  Metadata metadata_;
  std::map<std::string, std::string> checksums_;
  std::size_t written_ = 0;
  AtomicFile file_;
};

// A file opened for reading. The constructor reads and checks the whole header. Arrays are read one
// by one on request, so a large model is never in memory twice.
class SafetensorsFile {
 public:
  struct Entry {
    StoredType type = StoredType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header
    std::uint64_t bytes() const { return end - begin; }
  };

  // Throws Error with the path and the reason if the file is unreadable or inconsistent: a header
  // longer than the file, invalid JSON, a repeated name, an unknown type, or offsets that do not
  // fit the shape, overlap, leave a gap, or do not end with the file.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

  // Throws Error that names the file if it has no such array.
  const Entry& entry(const std::string& name) const;

  // Reads one array into `into`, whose size must be entry(name).bytes().
  void read(const std::string& name, std::span<std::byte> into);
  // Reads a part of it, from its byte `first` on, as many bytes as `into` has.
  void read_part(const std::string& name, std::uint64_t first, std::span<std::byte> into);

  // What is not as it was written, a few words each: "model.norm.weight", "metadata step". Reads
  // the whole file. Empty if the file has no checksums, as those of other programs.
  std::vector<std::string> changes();

 private:
  std::filesystem::path path_;
  std::ifstream file_;
  std::uint64_t data_start_ = 0;
  std::map<std::string, Entry> entries_;
  Metadata metadata_;
};

}  // namespace ringside::transformer

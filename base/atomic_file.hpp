// Files that appear complete or not at all.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

namespace ringside {

// Writes to a temporary file next to `path`. commit() renames it to `path` once all bytes are on
// the disk:
//
//     AtomicFile file("model.safetensors");
//     file.write(...);
//     file.commit();      // without it (after an exception) `path` is unchanged
//
// Every function throws Error with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void rewrite(std::uint64_t first, std::string_view text);  // over bytes that were written before
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace ringside

// Files that are never seen half written.
#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

namespace ringside {

// Writes beside `path`, and takes its place only when all is on the disk:
//
//     AtomicFile file("model.safetensors");
//     file.write(...);
//     file.commit();      // without it, for instance after an exception, nothing is left behind
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
  void commit();

 private:
  std::filesystem::path path_, beside_;
  std::FILE* file_ = nullptr;
};

}  // namespace ringside

// Fuzzes the reader of .safetensors files.
#include "tests/fuzz/target.hpp"

#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transformer/checkpoint/safetensors.hpp"

namespace {

using ringside::transformer::SafetensorsFile;

// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 ||
        ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("cannot create a file in memory");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

// Checks what the reader says about a file that it accepted: the arrays fit into the file, and each
// can be read.
void check_promises(SafetensorsFile& file, std::size_t size) {
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : file.entries()) {
    // A double, because the product of a damaged shape may overflow an integer.
    double bytes_of_shape = static_cast<double>(ringside::transformer::bytes_of(entry.type));
    for (const std::int64_t extent : entry.shape) bytes_of_shape *= static_cast<double>(extent);
    if (entry.bytes() > size || bytes_of_shape != static_cast<double>(entry.bytes()))
      throw std::logic_error("an array was accepted whose size does not match its shape");
    std::vector<std::byte> bytes_read(entry.bytes());
    file.read(name, bytes_read);
    bytes += entry.bytes();
  }
  if (bytes + 8 > size) throw std::logic_error("an accepted file claims more bytes than it has");
}

std::string with_length(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data, 'x');
}

}  // namespace

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  const MemoryFile in_memory(input);
  std::optional<SafetensorsFile> file;
  if (!accepts([&] { file.emplace(in_memory.path()); })) return false;
  check_promises(*file, input.size());  // from here on an Error is a finding
  return true;
}

std::vector<std::string> good_inputs() {
  return {with_length("{}", 0),
          with_length(R"({"__metadata__":{"format":"pt"},)"
                      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                      R"("b":{"dtype":"F64","shape":[1],"data_offsets":[16,24]}})",
                      24),
          with_length(R"({"model.layers.0.mlp.up_proj.weight":)"
                      R"({"dtype":"F32","shape":[0,2147483648,2147483648],"data_offsets":[0,0]},)"
                      R"("x":{"shape":[],"data_offsets":[0,1],"dtype":"U8"},)"
                      R"("y":{"dtype":"I64","shape":[1,1,1],"data_offsets":[1,9]}}   )",
                      9)};
}

std::vector<std::string> words() {
  return {"\"F16\"",
          "\"I32\"",
          "\"dtype\"",
          "\"shape\"",
          "\"data_offsets\"",
          "\"__metadata__\"",
          "[0,16]",
          "[]",
          "{}",
          "null",
          "-1",
          "1e308",
          "9223372036854775807",
          "9223372036854775808",
          "18446744073709551615",
          "18446744073709551616",
          "4294967296",
          "2147483648",
          "\\u0000",
          "\\ud800",
          "\xff",
          ",",
          "[[[[[[",
          "{\"a\":",
          "\"a\"",
          "0",
          "16",
          "24"};
}

// Sets the length of the header so that it ends at the last brace. Otherwise the reader would
// reject nearly every input before it parses the header.
void repair(std::string& input) {
  const std::size_t end = input.rfind('}');
  if (end == std::string::npos || end < 8) return;
  const std::uint64_t length = end + 1 - 8;
  std::memcpy(input.data(), &length, sizeof length);
}

}  // namespace ringside::fuzz

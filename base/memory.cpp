#include "base/memory.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace ringside {
namespace {

namespace fs = std::filesystem;
using Bytes = std::optional<std::uint64_t>;

Bytes smaller(Bytes a, Bytes b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// The number in a file that holds only a number; nullopt if it holds something else, such as "max".
Bytes number_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? Bytes(number) : std::nullopt;
}

// The number after `key` in a file of lines "key number".
Bytes number_after(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::uint64_t number = 0;
    if (word == key && file >> number) return number;
  }
  return std::nullopt;
}

// File names and keys, which differ between the two versions of control groups.
struct Names {
  const char *limit, *used, *reclaimable;
};
constexpr Names version_2{"memory.max", "memory.current", "inactive_file"};
constexpr Names version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

// The least memory left in a group or any group above it, up to `top`. Inactive cached files count
// as free: the kernel can drop them.
Bytes left_in_group(fs::path group, const fs::path& top, const Names& names) {
  Bytes left;
  for (;;) {
    if (const Bytes limit = number_in(group / names.limit)) {
      const std::uint64_t reclaimable =
          number_after(group / "memory.stat", names.reclaimable).value_or(0);
      const std::uint64_t used = number_in(group / names.used).value_or(0);
      const std::uint64_t held = used - std::min(used, reclaimable);
      left = smaller(left, *limit - std::min(*limit, held));
    }
    if (group == top || !group.has_relative_path() || group == group.parent_path()) return left;
    group = group.parent_path();
  }
}

// /proc/self/cgroup has lines "number:controllers:/path"; in version 2 one line, "0::/path". In a
// container the path may be the host's and not exist here; then the process is in the top group.
Bytes left_in_groups(const fs::path& root) {
  const fs::path mounted = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  Bytes left;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    const bool is_version_1 = controllers == "memory";
    if (!is_version_1 && !controllers.empty()) continue;
    const fs::path top = is_version_1 ? mounted / "memory" : mounted;
    const fs::path group = (top / fs::path(path).relative_path()).lexically_normal();
    left = smaller(left, left_in_group(fs::exists(group) ? group : top, top,
                                       is_version_1 ? version_1 : version_2));
  }
  return left;
}

}  // namespace

std::optional<std::uint64_t> available_memory(const fs::path& root) {
  Bytes machine = number_after(root / "proc/meminfo", "MemAvailable:");
  if (machine) *machine *= 1024;  // from KiB
  return smaller(machine, left_in_groups(root));
}

std::optional<std::uint64_t> peak_resident_memory(const fs::path& root) {
  Bytes peak = number_after(root / "proc/self/status", "VmHWM:");
  if (peak) *peak *= 1024;  // from KiB
  return peak;
}

void reset_peak_resident_memory() {
  std::ofstream("/proc/self/clear_refs") << 5;  // 5 resets VmHWM: proc(5)
}

}  // namespace ringside

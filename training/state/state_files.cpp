#include "training/state/state_files.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <signal.h>

#include <fmt/format.h>

#include "base/text/read_number.hpp"

namespace ringside::training {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view state_start = "training-", state_end = ".safetensors";

// Whether `name` is a file that a process was writing when it was killed: NAME.PID.part
// (base/atomic_file.hpp).
bool is_partial_file(const std::string& name) {
  constexpr std::array<std::string_view, 4> ours = {state_start, "model.", "config.", "tokenizer"};
  const bool is_ours = std::any_of(ours.begin(), ours.end(),
                                   [&](std::string_view start) { return name.starts_with(start); });
  if (!is_ours || !name.ends_with(".part")) return false;
  const std::string without = name.substr(0, name.size() - 5);
  const std::size_t dot = without.rfind('.');
  if (dot == std::string::npos) return false;
  const auto pid = decimal_number<int>(std::string_view(without).substr(dot + 1));
  return pid > 0 && ::kill(*pid, 0) != 0;
}

}  // namespace

std::string new_state_name(const fs::path& directory, std::int64_t step) {
  std::string name = fmt::format("{}{}{}", state_start, step, state_end);
  for (int again = 2; fs::exists(directory / name); ++again)
    name = fmt::format("{}{}-{}{}", state_start, step, again, state_end);
  return name;
}

bool is_state_name(const std::string& name) {
  return name.starts_with(state_start) && name.ends_with(state_end) &&
         name.find('/') == std::string::npos;
}

void remove_old_files(const fs::path& directory, const std::string& state_in_use) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if ((is_state_name(name) && name != state_in_use) || is_partial_file(name))
      fs::remove(entry.path(), ignored);
  }
}

}  // namespace ringside::training

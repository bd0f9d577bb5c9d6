#include "cli/memory_check.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/memory.hpp"

namespace ringside::cli {
namespace {

std::string in_gb(double bytes) {
  return fmt::format("{:.{}f} GB", bytes / 1e9, bytes < 10e9 ? 2 : 0);
}

// "parameters 7.87 GB, gradients 16 GB"
std::string in_parts(const transformer::MemoryNeed& need) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : {std::pair("parameters", need.parameters), std::pair("gradients", need.gradients),
                                    std::pair("optimizer", need.optimizer), std::pair("activations", need.activations)})
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, in_gb(bytes)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

CLI::Option* add_memory_limit(CLI::App& command, std::optional<double>& gigabytes) {
  return command
      .add_option("--memory-limit", gigabytes, "Memory on this machine, in 10^9 bytes: what takes more is not begun; 0: begin in any case (what is free)")
      ->type_name("GB")
      ->check(CLI::NonNegativeNumber.description(""));
}

void require_memory(const transformer::MemoryNeed& of_a_rank, int ranks_here, std::optional<double> limit_gigabytes, const std::string& advice) {
  const auto available = available_memory();
  const double limit = limit_gigabytes ? *limit_gigabytes * 1e9 : available ? static_cast<double>(*available) : 0;
  if (limit == 0) return;  // nobody knows, or nobody wants to know
  const double all = of_a_rank.total() * ranks_here;
  const std::string ranks = ranks_here == 1 ? "" : fmt::format("{} ranks of {}: ", ranks_here, in_gb(of_a_rank.total()));
  require(all <= limit, "this takes about {} of memory ({}{}), but there are {}: {}; --memory-limit 0 tries it all the same", in_gb(all), ranks,
          in_parts(of_a_rank), in_gb(limit), advice);
}

}  // namespace ringside::cli

#include "cli/memory_check.hpp"

#include <string>

#include "base/error.hpp"
#include "base/memory.hpp"

namespace ringside::cli {
namespace {

std::string in_gb(double bytes) {
  return fmt::format("{:.{}f} GB", bytes / 1e9, bytes < 10e9 ? 2 : 0);
}

}  // namespace

void add_memory_limit(CLI::App& command, std::optional<double>& gigabytes) {
  command.add_option("--memory-limit", gigabytes, "In 10^9 bytes: what takes more is not begun; 0: begin in any case (what is free)")
      ->type_name("GB")
      ->check(CLI::NonNegativeNumber.description(""));
}

void require_memory(const transformer::MemoryNeed& need, std::optional<double> limit_gigabytes, const char* advice) {
  const auto available = available_memory();
  const double limit = limit_gigabytes ? *limit_gigabytes * 1e9 : available ? static_cast<double>(*available) : 0;
  if (limit == 0) return;  // nobody knows, or nobody wants to know
  const std::string gradients = need.gradients > 0 ? fmt::format(", gradients {}", in_gb(need.gradients)) : "";
  require(need.total() <= limit, "this takes about {} of memory (parameters {}{}, activations {}), but there are {}: {}; --memory-limit 0 tries it all the same",
          in_gb(need.total()), in_gb(need.parameters), gradients, in_gb(need.activations), in_gb(limit), advice);
}

}  // namespace ringside::cli

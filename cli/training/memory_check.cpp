#include "cli/training/memory_check.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "autograd/tensor/device_memory.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "cli/report/numbers.hpp"
#include "cli/training/device_option.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::cli {
namespace {

std::string in_gb(double bytes) {
  return fmt::format("{:.{}f} GB", bytes / 1e9, bytes < 10e9 ? 2 : 0);
}

// "parameters 7.87 GB, gradients 16 GB"
std::string in_parts(const transformer::MemoryNeed& need, std::string (*text_of)(double)) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] :
       {std::pair("parameters", need.parameters), std::pair("gradients", need.gradients),
        std::pair("optimizer", need.optimizer), std::pair("activations", need.activations)})
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, text_of(bytes)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string memory_text(const transformer::MemoryNeed& need) {
  return fmt::format("{}B ({})", with_unit(need.total()),
                     in_parts(need, [](double bytes) { return with_unit(bytes) + "B"; }));
}

CLI::Option* add_memory_limit(CLI::App& command, std::optional<double>& gigabytes) {
  return command
      .add_option(
          "--memory-limit", gigabytes,
          "Refuse to start if this machine needs more memory, in 10^9 bytes; 0: do not check "
          "[the available memory]")
      ->type_name("GB")
      ->check(CLI::NonNegativeNumber.description(""));
}

void require_memory(const transformer::MemoryNeed& of_a_rank, int ranks_here,
                    std::optional<double> limit_gigabytes, const std::string& advice,
                    autograd::Device device) {
  const bool on_gpu = device == autograd::Device::cuda;
  if (on_gpu) take_device(device);
  const std::optional<std::uint64_t> available =
      on_gpu ? autograd::device_memory(device).free_bytes() : available_memory();
  if (on_gpu)
    ranks_here =
        (ranks_here + collectives::cuda::device_count() - 1) / collectives::cuda::device_count();
  const double limit = limit_gigabytes ? *limit_gigabytes * 1e9
                       : available     ? static_cast<double>(*available)
                                       : 0;
  if (limit == 0) return;  // unknown, or not to be checked
  const double all = of_a_rank.total() * ranks_here;
  const std::string ranks =
      ranks_here == 1 ? "" : fmt::format("{} ranks of {}: ", ranks_here, in_gb(of_a_rank.total()));
  // "22 GB, but there are 22 GB" would be no reason: such numbers are shown with more digits.
  const bool look_alike = in_gb(all) == in_gb(limit);
  const auto shown = [&](double bytes) {
    return look_alike ? fmt::format("{:.2f} GB", bytes / 1e9) : in_gb(bytes);
  };
  require(
      all <= limit,
      "this needs about {} of {}memory ({}{}), but {} are available: {}; --memory-limit 0 tries it "
      "anyway",
      shown(all), on_gpu ? "the GPU's " : "", ranks, in_parts(of_a_rank, in_gb), shown(limit),
      advice);
}

}  // namespace ringside::cli

#include "training/memory_check.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "autograd/tensor/device_memory.hpp"
#include "base/error.hpp"
#include "base/memory.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::training {
namespace {

std::string in_gb(double bytes) {
  return fmt::format("{:.{}f} GB", bytes / 1e9, bytes < 10e9 ? 2 : 0);
}

}  // namespace

std::string memory_in_parts(const MemoryNeed& need, std::string (*text_of)(double)) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] :
       {std::pair("parameters", need.parameters), std::pair("gradients", need.gradients),
        std::pair("optimizer", need.optimizer), std::pair("activations", need.activations)})
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, text_of(bytes)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void require_memory(const MemoryNeed& of_a_rank, int ranks_here,
                    std::optional<double> limit_gigabytes, const std::string& advice,
                    autograd::Device device, double checkpoint_copy) {
  const bool on_gpu = device == autograd::Device::cuda;
  if (on_gpu)
    collectives::cuda::choose_device(collectives::rank_info_from_environment().local_rank);
  const std::optional<std::uint64_t> available =
      on_gpu ? autograd::device_memory(device).free_bytes() : available_memory();
  if (on_gpu)
    ranks_here =
        (ranks_here + collectives::cuda::device_count() - 1) / collectives::cuda::device_count();
  const double limit = limit_gigabytes ? *limit_gigabytes * 1e9
                       : available     ? static_cast<double>(*available)
                                       : 0;
  if (limit == 0) return;           // unknown, or not to be checked
  if (on_gpu) checkpoint_copy = 0;  // it is in the host's memory
  const double all = of_a_rank.peak * ranks_here + checkpoint_copy;
  const std::string copy =
      checkpoint_copy == 0
          ? ""
          : fmt::format("; {} for the copy that --save-every writes", in_gb(checkpoint_copy));
  const std::string ranks =
      ranks_here == 1 ? "" : fmt::format("{} ranks of {}: ", ranks_here, in_gb(of_a_rank.peak));
  // "22 GB, but there are 22 GB" would be no reason: such numbers are shown with more digits.
  const bool look_alike = in_gb(all) == in_gb(limit);
  const auto shown = [&](double bytes) {
    return look_alike ? fmt::format("{:.2f} GB", bytes / 1e9) : in_gb(bytes);
  };
  require(all <= limit,
          "this needs about {} of {}memory ({}{}{}), but {} are available: {}; --memory-limit 0 "
          "tries it "
          "anyway",
          shown(all), on_gpu ? "the GPU's " : "", ranks, memory_in_parts(of_a_rank, in_gb), copy,
          shown(limit), advice);
}

}  // namespace ringside::training

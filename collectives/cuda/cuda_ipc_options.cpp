// In every build, because the program reads it.
#include "base/environment.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/cuda/cuda_backends.hpp"
#include "collectives/selection/algorithm_selection.hpp"

namespace ringside::collectives::cuda {

bool is_cuda_ipc_algorithm(std::string_view name) {
  return name == "ring" || name == "two_shot" || name == "one_shot";
}

// An algorithm that is forced for messages between hosts, and that the kernels do not have, leaves
// the choice to them.
CudaIpcOptions cuda_ipc_options_from_environment() {
  CudaIpcOptions options;
  if (const auto seconds = integer_environment("RINGSIDE_TIMEOUT", 1, 1000000))
    options.timeout = Seconds(*seconds);
  const auto forced = environment("RINGSIDE_ALGORITHM");
  if (forced && forced->find("all_reduce=") != std::string::npos) {
    const AlgorithmSelection selection(*forced);
    const auto name = selection.choose(Collective::all_reduce, 1, DataType::fp32, 1).name;
    if (is_cuda_ipc_algorithm(name)) options.all_reduce = name;
  }
  return options;
}

// A one_shot sends each byte to every rank in packets of twice the size, and waits once; a two_shot
// sends a quarter of that or less, and waits twice. Where they meet is to be measured on GPUs.
std::string_view cuda_ipc_algorithm(std::size_t bytes) {
  constexpr std::size_t most_bytes_of_one_shot = 64 << 10;
  return bytes <= most_bytes_of_one_shot ? "one_shot" : "two_shot";
}

}  // namespace ringside::collectives::cuda

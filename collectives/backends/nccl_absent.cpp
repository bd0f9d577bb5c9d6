// Stands in for nccl.cpp where no NCCL was found.
#include "collectives/cuda/cuda_backends.hpp"

namespace ringside::collectives::cuda {

bool nccl_is_here() {
  return false;
}
std::string nccl_version() {
  return "";
}
std::unique_ptr<Backend> make_nccl_backend(const RankInfo&, Seconds) {
  fail(
      "this build has no NCCL: install libnccl-dev of NVIDIA's repository, then configure with the "
      "preset cuda and build again");
}

}  // namespace ringside::collectives::cuda

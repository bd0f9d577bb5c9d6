// Replaces nccl.cpp in a build without NCCL's header or without the CUDA Toolkit.
#include "collectives/backends/nccl.hpp"

namespace ringside::collectives {
namespace {

constexpr const char* missing =
    "this build has no NCCL: install libnccl-dev of NVIDIA's repository, then configure with the "
    "preset cuda and build again";

}  // namespace

bool nccl_is_here() {
  return false;
}
std::string nccl_version() {
  return "";
}
std::unique_ptr<cuda::DeviceBackend> make_nccl_backend(ProcessGroup&, int, const NcclOptions&) {
  fail("{}", missing);
}
std::unique_ptr<cuda::DeviceBackend> make_nccl_backend(const RankInfo&, const NcclOptions&) {
  fail("{}", missing);
}

}  // namespace ringside::collectives

#include "collectives/transport/automatic.hpp"

#include "base/error.hpp"
#include "collectives/bootstrap/sub_group_connector.hpp"
#include "collectives/transport/shm/shm.hpp"
#include "collectives/transport/shm/shm_meeting.hpp"
#include "collectives/transport/tcp.hpp"

namespace ringside::collectives {
namespace {

std::unique_ptr<Transport> make_suitable(const RankInfo& rank_info, Mesh mesh) {
  if (rank_info.size > 1 && mesh.on_one_host()) {
    try {
      return make_shm(rank_info, mesh, {}, make_suitable);
    } catch (const CannotShare& reason) {  // every rank throws this, or none does
      if (rank_info.rank == 0)
        fmt::print(stderr, "ringside: {}. The ranks take TCP instead.\n", reason.what());
    }
  }
  return make_tcp(rank_info, std::move(mesh), make_suitable);
}

}  // namespace

std::unique_ptr<Transport> connect_automatic(const RankInfo& rank_info) {
  return make_suitable(rank_info, meet(rank_info));
}

}  // namespace ringside::collectives

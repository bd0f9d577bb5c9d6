#include "collectives/transport/automatic.hpp"

#include "base/error.hpp"
#include "collectives/transport/founder.hpp"
#include "collectives/transport/shm.hpp"
#include "collectives/transport/shm_meeting.hpp"
#include "collectives/transport/tcp.hpp"

namespace ringside::collectives {
namespace {

std::unique_ptr<Transport> make_suitable(const Place& place, Mesh mesh) {
  if (place.size > 1 && mesh.on_one_host()) {
    try {
      return make_shm(place, mesh, {}, make_suitable);
    } catch (const CannotShare& reason) {  // every rank throws this, or none does
      if (place.rank == 0) fmt::print(stderr, "ringside: {}. The ranks take TCP instead.\n", reason.what());
    }
  }
  return make_tcp(place, std::move(mesh), make_suitable);
}

}  // namespace

std::unique_ptr<Transport> connect_automatic(const Place& place) { return make_suitable(place, meet(place)); }

}  // namespace ringside::collectives

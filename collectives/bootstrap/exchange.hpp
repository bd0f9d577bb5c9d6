// What the ranks of a mesh tell each other before they have a transport.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"
#include "collectives/bootstrap/rendezvous/mesh.hpp"

namespace ringside::collectives {

// Sends `mine` to every rank. Returns what the ranks sent: element r comes from rank r. Each is
// short enough for the kernel's buffer, so all can send first. Throws Error if a rank has died, or
// is silent at the deadline.
template <class T>
std::vector<T> exchange(Mesh& mesh, int rank, const T& mine, const Deadline& deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr std::string_view gone = "rank {} went away while the ranks were connecting ({})";
  const int size = static_cast<int>(mesh.control.size());
  std::vector<T> all(size, mine);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    boost::system::error_code error;
    boost::asio::write(*mesh.control[r], boost::asio::buffer(&mine, sizeof mine), error);
    require(!error, gone, mesh.names(r), error.message());
  }
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const auto error =
        read_all(*mesh.io, *mesh.control[r], boost::asio::buffer(&all[r], sizeof(T)), deadline);
    require(error != boost::asio::error::timed_out,
            "rank {} is connected, but did not say how to reach it within {:.0f} s", mesh.names(r),
            deadline.total().count());
    require(!error, gone, mesh.names(r), error.message());
  }
  return all;
}

}  // namespace ringside::collectives

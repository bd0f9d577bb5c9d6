#include "collectives/bootstrap/rendezvous/mesh.hpp"

#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "base/error.hpp"

namespace ringside::collectives {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

bool Mesh::on_one_host() const {
  return std::all_of(addresses.begin(), addresses.end(), [&](const Address& each) {
    return each.proc_domain == addresses.front().proc_domain;
  });
}

MeshBuilder::MeshBuilder(const RankInfo& rank_info, std::unique_ptr<asio::io_context> io)
    : rank_info_(rank_info), key_(hash_of(rank_info.job_key)) {
  require(rank_info.size >= 1 && rank_info.rank >= 0 && rank_info.rank < rank_info.size,
          "rank {} is not in a world of {}", rank_info.rank, rank_info.size);
  mesh_.io = std::move(io);
  mesh_.data.resize(rank_info.size);
  mesh_.control.resize(rank_info.size);
  mesh_.addresses.resize(rank_info.size);
}

void MeshBuilder::listen_on(const tcp::endpoint& endpoint) {
  auto acceptor = listen_at(io(), endpoint, who(), 2 * rank_info_.size);
  addresses()[rank_info_.rank] = address_of(acceptor.local_endpoint());
  accept_from(std::move(acceptor));
}

void MeshBuilder::accept_from(tcp::acceptor acceptor) {
  acceptors_.push_back(
      std::make_unique<Acceptor>(std::move(acceptor), key_, rank_info_.rank,
                                 [this](const Handshake& handshake, tcp::socket socket) {
                                   welcome(handshake, std::move(socket));
                                 }));
}

void MeshBuilder::send_handshake(tcp::socket& socket, Handshake::Purpose purpose) {
  Handshake handshake{.purpose = purpose,
                      .key = key_,
                      .rank = rank_info_.rank,
                      .size = rank_info_.size,
                      .listens_on = addresses()[rank_info_.rank]};
  rank_info_.backend.copy(handshake.backend, sizeof handshake.backend);
  error_code error;
  socket.set_option(tcp::no_delay(true), error);
  if (!error) asio::write(socket, asio::buffer(&handshake, sizeof handshake), error);
  require(!error, "rank {} lost a connection as soon as it was made: {}", rank_info_.rank,
          error.message());
}

void MeshBuilder::connect_all() {
  const Deadline deadline = Deadline::after(rank_info_.connect_timeout);
  for (int r = 0; r < rank_info_.rank; ++r) {
    const std::string whom = fmt::format("rank {} has come and gone: it", r);
    for (const auto purpose : {Handshake::data, Handshake::control}) {
      auto& socket = purpose == Handshake::data ? mesh_.data[r] : mesh_.control[r];
      socket = connect_to(io(), {endpoint_of(addresses()[r])}, deadline, who(), whom, check_);
      send_handshake(*socket, purpose);
    }
  }
  const auto first_missing = [this] {
    int r = rank_info_.rank + 1;
    while (r < rank_info_.size && mesh_.data[r] && mesh_.control[r]) ++r;
    return r;
  };
  const bool all = wait_until(deadline, [&] { return first_missing() == rank_info_.size; });
  require(all, "rank {} came, but did not connect to rank {} within {:.0f} s", first_missing(),
          rank_info_.rank, deadline.total().count());
}

// Keeps a connection with a valid handshake, or closes it if no rank of this job would make it.
void MeshBuilder::welcome(const Handshake& handshake, tcp::socket socket) {
  if (handshake.purpose == Handshake::join) return welcome_joiner_(handshake, std::move(socket));
  const bool from_above = handshake.rank > rank_info_.rank && handshake.rank < rank_info_.size;
  auto* sockets = handshake.purpose == Handshake::data      ? &mesh_.data
                  : handshake.purpose == Handshake::control ? &mesh_.control
                                                            : nullptr;
  if (!sockets || !from_above || (*sockets)[handshake.rank]) return;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  (*sockets)[handshake.rank] = std::move(socket);
}

Mesh MeshBuilder::take() {
  acceptors_.clear();
  return std::move(mesh_);
}

}  // namespace ringside::collectives

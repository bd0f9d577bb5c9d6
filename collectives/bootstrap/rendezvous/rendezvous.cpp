#include "collectives/bootstrap/rendezvous/rendezvous.hpp"

#include "base/error.hpp"
#include "collectives/bootstrap/rendezvous/guest.hpp"
#include "collectives/bootstrap/rendezvous/host.hpp"
#include "collectives/bootstrap/rendezvous/sockets.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Calls `connect`, and turns an exception of asio into an Error.
template <class Connect>
auto with_errors_in_words(const std::string& who, Connect connect) {
  try {
    return connect();
  } catch (const boost::system::system_error& error) {
    check_open_files(error.code().value(), who);
    fail("{} cannot connect with the other ranks: {}", who, error.what());
  }
}

std::vector<tcp::endpoint> resolve_master(const RankInfo& rank_info, asio::io_context& io) {
  error_code error;
  const auto found = tcp::resolver(io).resolve(rank_info.master_address,
                                               std::to_string(rank_info.master_port), error);
  require(!error && !found.empty(), "MASTER_ADDR={} is not a host that rank {} knows ({})",
          rank_info.master_address, rank_info.rank, error.message());
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return endpoints;
}

}  // namespace

Mesh connect_mesh(const RankInfo& rank_info) {
  return with_errors_in_words(fmt::format("rank {}", rank_info.rank), [&] {
    MeshBuilder builder(rank_info, std::make_unique<asio::io_context>());
    if (rank_info.size == 1) {
      builder.addresses()[0] = address_of({asio::ip::address_v4::loopback(), 0});
      return builder.take();
    }
    const auto masters = resolve_master(rank_info, builder.io());
    return rank_info.rank == 0 ? host_rendezvous(rank_info, masters, builder)
                               : join_rendezvous(rank_info, masters, builder);
  });
}

Listener::Listener(const Address& other) : io_(std::make_unique<asio::io_context>()) {
  const tcp::endpoint any_port(endpoint_of(other).address(), 0);
  const std::string who = "a rank of a sub-group";
  with_errors_in_words(who, [&] { acceptor_.emplace(listen_at(*io_, any_port, who, 0)); });
  address_ = address_of(acceptor_->local_endpoint());
}

Mesh Listener::connect_mesh(const RankInfo& rank_info, std::vector<Address> addresses,
                            RankNames names, const std::function<void()>& check) {
  return with_errors_in_words("rank " + names(rank_info.rank), [&] {
    MeshBuilder builder(rank_info, std::move(io_), std::move(names));
    builder.addresses() = std::move(addresses);
    builder.set_check(check);
    builder.accept_from(std::move(*acceptor_));
    acceptor_.reset();
    builder.connect_all();
    return builder.take();
  });
}

}  // namespace ringside::collectives

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

struct Listener::Listening {
  std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>();
  tcp::acceptor acceptor;
  explicit Listening(const tcp::endpoint& endpoint)
      : acceptor(listen_at(*io, endpoint, "a rank of a sub-group", 0)) {}
};

Listener::Listener(const Address& other) {
  auto endpoint = endpoint_of(other);
  endpoint.port(0);
  listening_ = with_errors_in_words("a rank of a sub-group",
                                    [&] { return std::make_unique<Listening>(endpoint); });
  address_ = address_of(listening_->acceptor.local_endpoint());
}

Listener::~Listener() = default;
Listener::Listener(Listener&&) noexcept = default;

Mesh Listener::connect_mesh(const RankInfo& rank_info, std::vector<Address> addresses,
                            const std::function<void()>& check) {
  return with_errors_in_words(fmt::format("rank {}", rank_info.rank), [&] {
    MeshBuilder builder(rank_info, std::move(listening_->io));
    builder.addresses() = std::move(addresses);
    builder.set_check(check);
    builder.accept_from(std::move(listening_->acceptor));
    builder.connect_all();
    return builder.take();
  });
}

}  // namespace ringside::collectives

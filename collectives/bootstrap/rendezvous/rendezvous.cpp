#include "collectives/bootstrap/rendezvous/rendezvous.hpp"

#include <algorithm>

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
  for (const auto& entry : found)  // the C library may list one twice
    if (std::find(endpoints.begin(), endpoints.end(), entry.endpoint()) == endpoints.end())
      endpoints.push_back(entry.endpoint());
  // Ranks of other hosts cannot use a loopback address, so nobody does where there is another.
  if (!rank_info.one_host)
    std::stable_partition(endpoints.begin(), endpoints.end(),
                          [](const auto& each) { return !each.address().is_loopback(); });
  return endpoints;
}

// What is to be said where nobody comes, though MASTER_ADDR leads each host to itself.
std::string loopback_hint(const RankInfo& rank_info, const std::vector<tcp::endpoint>& masters) {
  const auto first = masters.front().address();  // the others are loopback addresses, too, if it is
  if (rank_info.one_host || !first.is_loopback()) return "";
  if (rank_info.rank == 0 && !names_loopback(rank_info.master_address))
    return "";  // open_to_others()
  const std::string text = first.to_string(), &name = rank_info.master_address;
  return fmt::format(
      "MASTER_ADDR={}{} is a loopback address, which leads each host to itself. If the ranks run "
      "on "
      "several hosts, set MASTER_ADDR (or --master-addr) to the address of rank 0 in their network",
      name, name == text ? "" : fmt::format(" ({} on this host)", text));
}

}  // namespace

Mesh connect_mesh(const RankInfo& rank_info) {
  return with_errors_in_words(fmt::format("rank {}", rank_info.rank), [&] {
    MeshBuilder builder(rank_info, std::make_unique<asio::io_context>());
    if (rank_info.size == 1) {
      builder.addresses()[0] = address_of({asio::ip::address_v4::loopback(), 0}, rank_info.costs);
      return builder.take();
    }
    const auto masters = resolve_master(rank_info, builder.io());
    const std::string hint = loopback_hint(rank_info, masters);
    return rank_info.rank == 0 ? host_rendezvous(rank_info, masters, hint, builder)
                               : join_rendezvous(rank_info, masters, hint, builder);
  });
}

Listener::Listener(const Address& other) : io_(std::make_unique<asio::io_context>()) {
  const tcp::endpoint any_port(endpoint_of(other).address(), 0);
  const std::string who = "a rank of a sub-group";
  with_errors_in_words(who, [&] { acceptor_.emplace(listen_at(*io_, any_port, who, 0)); });
  address_ = address_of(acceptor_->local_endpoint(), other.costs);
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

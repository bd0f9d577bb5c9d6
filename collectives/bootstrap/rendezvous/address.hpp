// Where a rank listens, and what all ranks must know of its host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

namespace ringside::collectives {

// Part of the handshake's wire format.
struct Address {
  char text[44] = {};  // numeric, IPv4 or IPv6
  std::uint16_t port = 0;
  std::uint16_t cores = 0;  // of its host
  std::uint32_t costs = 0;  // RankInfo::costs
  // RankLocation::process and proc_domain: ranks with the same domain can share memory.
  std::int32_t process = 0;
  std::uint64_t proc_domain = 0;
};

// Of a rank of this host; `costs` is RankInfo::costs.
Address address_of(const boost::asio::ip::tcp::endpoint& endpoint, std::uint32_t costs = 0);

// An IPv4 address in the form that a socket of IPv6 has for it, ::ffff:10.0.0.1, as 10.0.0.1.
boost::asio::ip::address unmapped(const boost::asio::ip::address& address);

void set_host(Address& address, const boost::asio::ip::address& host);

// Throws Error unless the text is an address: it comes from another rank.
boost::asio::ip::tcp::endpoint endpoint_of(const Address& address);

std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);  // "10.0.0.1:29500"
std::string to_text(const std::vector<boost::asio::ip::tcp::endpoint>& endpoints);  // "A or B"

}  // namespace ringside::collectives

#include "collectives/bootstrap/network_interface.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <ifaddrs.h>
#include <netinet/in.h>

#include <fmt/format.h>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

namespace ip = boost::asio::ip;

std::optional<ip::address> address_in(const sockaddr* address) {
  if (address != nullptr && address->sa_family == AF_INET)
    return ip::address_v4(ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr));
  if (address == nullptr || address->sa_family != AF_INET6) return std::nullopt;
  ip::address_v6::bytes_type bytes;
  std::copy_n(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr, bytes.size(),
              bytes.begin());
  const ip::address_v6 found(bytes);
  return found.is_link_local() ? std::nullopt : std::optional<ip::address>(found);
}

}  // namespace

ip::address address_of_interface(const std::string& name, const ip::address& alike) {
  ifaddrs* list = nullptr;
  require(::getifaddrs(&list) == 0, "the network interfaces of this host cannot be listed");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<std::string> others;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const auto address = address_in(each->ifa_addr);
    if (!address || address->is_v6() != alike.is_v6()) continue;
    if (each->ifa_name == name) return *address;
    others.push_back(fmt::format("{} ({})", each->ifa_name, address->to_string()));
  }
  fail(
      "RINGSIDE_INTERFACE={} is not a network interface of this host with an {} address, as "
      "MASTER_ADDR has; there {}: {}",
      name, alike.is_v6() ? "IPv6" : "IPv4", others.size() == 1 ? "is" : "are",
      others.empty() ? "none" : fmt::format("{}", fmt::join(others, ", ")));
}

}  // namespace ringside::collectives

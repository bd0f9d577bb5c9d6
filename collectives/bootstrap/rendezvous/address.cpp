#include "collectives/bootstrap/rendezvous/address.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/printable.hpp"
#include "collectives/bootstrap/rank_location.hpp"

namespace ringside::collectives {

namespace ip = boost::asio::ip;
using ip::tcp;

Address address_of(const tcp::endpoint& endpoint, std::uint32_t costs) {
  Address address;
  const RankLocation here = location_of_this_process();
  address.proc_domain = here.proc_domain;
  address.process = static_cast<std::int32_t>(here.process);
  address.cores = static_cast<std::uint16_t>(std::clamp<unsigned>(
      std::thread::hardware_concurrency(), 1, std::numeric_limits<std::uint16_t>::max()));
  address.costs = costs;
  set_host(address, endpoint.address());
  address.port = endpoint.port();
  return address;
}

void set_host(Address& address, const ip::address& host) {
  const std::string text = host.to_string();
  std::memset(address.text, 0, sizeof address.text);
  text.copy(address.text, sizeof address.text - 1);
}

tcp::endpoint endpoint_of(const Address& address) {
  const std::string text(address.text, ::strnlen(address.text, sizeof address.text));
  boost::system::error_code error;
  const auto parsed = ip::make_address(text, error);
  require(!error,
          "a rank sent '{}' as its address, which is not an IP address: do the ranks run "
          "different versions?",
          printable_line(text));
  return {parsed, address.port};
}

ip::address unmapped(const ip::address& address) {
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? ip::make_address_v4(ip::v4_mapped, address.to_v6())
             : address;
}

std::string to_text(const tcp::endpoint& endpoint) {
  const ip::address address = unmapped(endpoint.address());
  return address.is_v6() ? fmt::format("[{}]:{}", address.to_string(), endpoint.port())
                         : fmt::format("{}:{}", address.to_string(), endpoint.port());
}

std::string to_text(const std::vector<tcp::endpoint>& endpoints) {
  std::vector<std::string> texts;
  for (const auto& each : endpoints) texts.push_back(to_text(each));
  return fmt::format("{}", fmt::join(texts, " or "));
}

}  // namespace ringside::collectives

// RINGSIDE_INTERFACE: by which of a host's networks the ranks reach each other.
#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>

namespace ringside::collectives {

// The address of a network interface of this host, IPv4 or IPv6 like `alike`. Throws Error with a
// list of those that there are if there is no such interface, or it has no such address. Link-local
// addresses (fe80::...) are passed over: other hosts cannot use them as they are.
boost::asio::ip::address address_of_interface(const std::string& name,
                                              const boost::asio::ip::address& alike);

}  // namespace ringside::collectives

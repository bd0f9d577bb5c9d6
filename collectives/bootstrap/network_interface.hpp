// RINGSIDE_INTERFACE: the network by which the ranks of several hosts reach each other.
#pragma once

#include <string>

#include <boost/asio/ip/address.hpp>

namespace ringside::collectives {

// The address of a network interface of this host; IPv4 or IPv6 as `alike` is. Throws Error with a
// list of the interfaces if there is none of that name, or if it has no such address. Skips
// link-local addresses (fe80::...): other hosts cannot use them without a scope.
boost::asio::ip::address address_of_interface(const std::string& name,
                                              const boost::asio::ip::address& alike);

}  // namespace ringside::collectives

#include "collectives/exchange/network.hpp"

#include <exception>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/read_file.hpp"

namespace ringside::collectives {
namespace {

void link_both_ways(Network& network, int a, int b, int width = 1) {
  network.edges.push_back({a, b, width});
  network.edges.push_back({b, a, width});
}

// Two squares of four GPUs with their diagonals, joined at the corners; half of the links are
// double. Source: NVIDIA, "DGX-1 with Tesla V100 system architecture", figure 4.
Network dgx1() {
  Network network{"dgx1", 8, {}};
  for (const int square : {0, 4}) {
    link_both_ways(network, square, square + 1);
    link_both_ways(network, square, square + 2);
    link_both_ways(network, square, square + 3, 2);
    link_both_ways(network, square + 1, square + 2, 2);
    link_both_ways(network, square + 1, square + 3);
    link_both_ways(network, square + 2, square + 3, 2);
  }
  for (const int corner : {0, 1, 2, 3})
    link_both_ways(network, corner, corner + 4, corner < 2 ? 2 : 1);
  return network;
}

Network network_of_file(const std::string& file) {
  const auto text = read_if_possible(file);
  require(text.has_value(),
          "there is no network '{}': choose ring, line, star, full, dgx1 or a JSON file", file);
  Network network{file, 0, {}};
  try {
    const auto json = Json::parse(*text);
    network.size = json.at("ranks").get<int>();
    for (const auto& link : json.at("links")) {
      require(link.is_array() && (link.size() == 2 || link.size() == 3),
              "a link is [from, to] or [from, to, width], not {}", link.dump());
      const Network::Edge edge{link[0].get<int>(), link[1].get<int>(),
                               link.size() == 3 ? link[2].get<int>() : 1};
      const auto exists = [&](int node) { return node >= 0 && node < network.size; };
      require(exists(edge.from) && exists(edge.to) && edge.from != edge.to && edge.width >= 1,
              "the link {} needs two nodes of 0 to {} and a width of at least 1", link.dump(),
              network.size - 1);
      network.edges.push_back(edge);
    }
  } catch (const std::exception& error) {
    fail("the network {} cannot be used: {}", file, error.what());
  }
  return network;
}

}  // namespace

Network network_named(const std::string& name, int size) {
  Network network{name, size == 0 ? 4 : size, {}};
  if (name == "ring" || name == "line") {
    for (int node = 0; node + 1 < network.size; ++node) link_both_ways(network, node, node + 1);
    if (name == "ring" && network.size > 2) link_both_ways(network, network.size - 1, 0);
  } else if (name == "star") {
    for (int node = 1; node < network.size; ++node) link_both_ways(network, 0, node);
  } else if (name == "full") {
    for (int a = 0; a < network.size; ++a)
      for (int b = a + 1; b < network.size; ++b) link_both_ways(network, a, b);
  } else {
    network = name == "dgx1" ? dgx1() : network_of_file(name);
  }
  require(size == 0 || size == network.size, "the network {} has {} nodes, not {}: leave out -n",
          name, network.size, size);
  require(network.size >= 2 && network.size <= 64, "a network has 2 to 64 nodes, not {}",
          network.size);
  return network;
}

}  // namespace ringside::collectives

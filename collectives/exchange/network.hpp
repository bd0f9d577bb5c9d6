// A network of links between ranks, for which an algorithm is sought (synthesis.hpp).
#pragma once

#include <string>
#include <vector>

namespace ringside::collectives {

struct Network {
  struct Edge {
    int from, to, width;  // chunks in a round
  };
  std::string name;
  int size = 0;  // nodes, one for each rank
  std::vector<Edge> edges;
};

// "ring" (both ways), "line", "star" (around node 0), "full", each of `size` nodes; "dgx1": the 8
// GPUs of a DGX-1, with six NVLinks each; or a file FILE.json: {"ranks": 3, "links": [[0, 1], [1,
// 2, 2]]}, each from, to and perhaps the width. `size` 0: 4, or what the network has. Throws Error.
Network network_named(const std::string& name, int size);

}  // namespace ringside::collectives

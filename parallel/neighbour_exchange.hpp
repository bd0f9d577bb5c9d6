// A message to one neighbour of a ring and one from the other, under way at the same time.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/process_group.hpp"
#include "ddp/scoped_work.hpp"

namespace ringside::parallel {

// Every rank of the group makes one, then calls wait(). Until that returns, leave the memory alone.
// Declare it after that memory: the destructor waits, too.
class NeighbourExchange {
 public:
  NeighbourExchange(const collectives::ConstBuffer& sent, int to,
                    const collectives::Buffer& received, int from, collectives::ProcessGroup& group,
                    std::string_view label) {
    works_.reserve(2);
    const auto send = [&] { works_.emplace_back(group.send_async(sent, to, label)); };
    // Calls of a group wait for each other: if all ranks sent first, all would wait.
    const bool receives_first = group.rank() % 2 == 1;
    if (!receives_first) send();
    works_.emplace_back(group.recv_async(received, from, label));
    if (receives_first) send();
  }

  void wait() const {
    for (const ddp::ScopedWork& work : works_) work.wait();
  }

 private:
  std::vector<ddp::ScopedWork> works_;
};

}  // namespace ringside::parallel

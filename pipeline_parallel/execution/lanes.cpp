#include "pipeline_parallel/execution/lanes.hpp"

#include <set>

#include "base/error.hpp"
#include "collectives/transport/transport.hpp"
#include "parallel/tensor_collectives.hpp"

namespace ringside::pipeline_parallel {

using autograd::Tensor;
using collectives::ProcessGroup;

namespace {

using Edge = std::pair<int, int>;

std::set<Edge> edges_of(const Schedule& schedule) {
  std::set<Edge> edges;
  for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
    const int here = schedule.rank_of[stage], next = schedule.rank_of[stage + 1];
    if (here == next) continue;
    edges.insert({here, next});  // activations
    edges.insert({next, here});  // gradients
  }
  return edges;
}

}  // namespace

std::vector<std::vector<Edge>> rounds_of_edges(const Schedule& schedule) {
  std::set<Edge> left = edges_of(schedule);
  std::vector<std::vector<Edge>> rounds;
  while (!left.empty()) {
    std::vector<Edge> round;
    std::set<int> busy;
    for (const auto& [from, to] : left)
      if (!busy.contains(from) && !busy.contains(to)) {
        round.emplace_back(from, to);
        busy.insert({from, to});
      }
    for (const Edge& edge : round) left.erase(edge);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

Lanes::Lanes(ProcessGroup& group, const Schedule& schedule) {
  require(group.size() == schedule.ranks(), "the schedule is for {} ranks, but the pipeline has {}",
          schedule.ranks(), group.size());
  const int self = group.rank();
  for (const std::vector<Edge>& round : rounds_of_edges(schedule)) {
    // The color of an edge is its place in the round; a rank without an edge is alone.
    int color = static_cast<int>(round.size()) + self;
    Edge mine{-1, -1};
    for (std::size_t i = 0; i < round.size(); ++i)
      if (round[i].first == self || round[i].second == self)
        color = static_cast<int>(i), mine = round[i];
    const auto [from, to] = mine;
    ProcessGroup pair = group.split(color, from == self ? 0 : 1);
    if (from == self) to_.emplace(to, Lane{std::move(pair)});
    if (to == self) from_.emplace(from, Lane{std::move(pair)});
  }
}

Lanes::Lane& Lanes::lane(std::map<int, Lane>& lanes, int other, const char* direction) {
  const auto found = lanes.find(other);
  require(found != lanes.end(),
          "there is no lane {} rank {}: no two stages on these ranks follow "
          "each other",
          direction, other);
  return found->second;
}

void Lanes::wait(Lane& lane) {
  if (lane.work) lane.work->wait();
  lane.work.reset();
  lane.under_way = {};
}

void Lanes::send(Tensor tensor, int to, const std::string& label) {
  Lane& used = lane(to_, to, "to");
  wait(used);
  used.work = parallel::send_async(tensor, 1, used.group, label);
  used.under_way = std::move(tensor);
}

void Lanes::receive(const Tensor& tensor, int from, const std::string& label) {
  parallel::recv(tensor, 0, lane(from_, from, "from").group, label);
}

void Lanes::release_received() {
  for (auto& [to, used] : to_)
    if (used.work && used.work->done()) wait(used);
}

void Lanes::wait_for_sends() {
  for (auto& [to, used] : to_) wait(used);
}

void Lanes::abort(const std::string& cause) noexcept {
  for (auto* const lanes : {&to_, &from_})
    for (auto& [other, used] : *lanes) used.group.abort(cause);
}

std::uint64_t Lanes::bytes_sent(int to) const {
  const auto found = to_.find(to);
  return found == to_.end() ? 0 : found->second.group.traffic().payload_bytes_sent;
}

double Lanes::seconds_waited() const {
  double seconds = 0;
  for (const auto* const lanes : {&to_, &from_})
    for (const auto& [other, used] : *lanes) seconds += used.group.times().blocked;
  return seconds;
}

}  // namespace ringside::pipeline_parallel

#include "parallel/pipeline/execution/lanes.hpp"

#include <set>

#include "base/error.hpp"
#include "collectives/execution/traffic.hpp"
#include "parallel/tensor_collectives.hpp"

namespace ringside::pipeline_parallel {

using autograd::Tensor;
using collectives::ProcessGroup;

namespace {

// The same at both ends of a message.
std::string label_of(const Action& message) {
  return fmt::format("{} of micro-batch {} to stage {}",
                     carries_gradient(message.kind) ? "gradients" : "activations",
                     message.micro_batch,
                     is_send(message.kind) ? other_stage(message) : message.stage);
}

}  // namespace

std::vector<std::vector<Lane>> rounds_of_lanes(const Schedule& schedule) {
  std::vector<Lane> left = lanes_of(schedule);
  std::vector<std::vector<Lane>> rounds;
  while (!left.empty()) {
    std::vector<Lane> round, later;
    std::set<int> busy;
    for (const Lane& lane : left) {
      const bool fits = !busy.contains(lane.from) && !busy.contains(lane.to);
      (fits ? round : later).push_back(lane);
      if (fits) busy.insert({lane.from, lane.to});
    }
    rounds.push_back(std::move(round));
    left = std::move(later);
  }
  return rounds;
}

Lanes::Lanes(ProcessGroup& group, const Schedule& schedule) : schedule_(schedule) {
  require(group.size() == schedule.ranks(), "the schedule is for {} ranks, but the pipeline has {}",
          schedule.ranks(), group.size());
  const int self = group.rank();
  for (const std::vector<Lane>& round : rounds_of_lanes(schedule)) {
    // The color of a lane is its place in the round; a rank without a lane is alone.
    const Lane* mine = nullptr;
    for (const Lane& lane : round)
      if (lane.from == self || lane.to == self) mine = &lane;
    const int color = static_cast<int>(mine ? mine - round.data() : round.size() + self);
    ProcessGroup pair = group.split(color, mine && mine->from == self ? 0 : 1);
    if (mine) connections_.emplace(*mine, Connection{std::move(pair)});
  }
}

Lanes::Connection& Lanes::connection(const Action& message) {
  const auto found = connections_.find(lane_of(schedule_, message));
  require(found != connections_.end(), "this rank has no lane for {}", text_of(message));
  return found->second;
}

void Lanes::wait(Connection& connection) {
  if (connection.work) connection.work->wait();
  connection.work.reset();
  connection.under_way = {};
}

void Lanes::send(const Action& message, Tensor tensor) {
  Connection& lane = connection(message);
  wait(lane);
  lane.under_way = std::move(tensor);
  lane.work.emplace(parallel::send_async(lane.under_way, 1, lane.group, label_of(message)));
}

void Lanes::receive(const Action& message, const Tensor& tensor) {
  parallel::recv(tensor, 0, connection(message).group, label_of(message));
}

void Lanes::release_received() {
  for (auto& [lane, connection] : connections_)
    if (connection.work && connection.work->done()) wait(connection);
}

void Lanes::wait_for_sends() {
  for (auto& [lane, connection] : connections_) wait(connection);
}

void Lanes::abort(const std::string& cause) noexcept {
  for (auto& [lane, connection] : connections_) connection.group.abort(cause);
}

std::uint64_t Lanes::bytes_sent(const Lane& lane) const {
  const auto found = connections_.find(lane);
  return found == connections_.end() ? 0 : found->second.group.traffic().payload_bytes_sent;
}

std::uint64_t Lanes::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const auto& [lane, connection] : connections_) bytes += bytes_sent(lane);
  return bytes;
}

double Lanes::seconds_waited() const {
  double seconds = 0;
  for (const auto& [lane, connection] : connections_) seconds += connection.group.times().blocked;
  return seconds;
}

}  // namespace ringside::pipeline_parallel

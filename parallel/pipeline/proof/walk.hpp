// Walk: a schedule's actions in an order in which each comes after all that it waits for, and the
// clocks of ranks and lanes that follow it. No queue of events is needed: one pass in this order
// computes when each action starts and ends.
//
//     rank 0   F0 F1       B0    B1        in order: F0 F1 of rank 0, F0 B0 F1 B1 of rank 1,
//                ╲ ╲      ╱     ╱                    B0 B1 of rank 0
//     rank 1      F0 B0 F1 B1
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/places.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

struct Span {
  double start = 0, end = 0;
};

// An action of a schedule: actions[rank][index].
struct Place {
  int rank = 0, index = 0;
};

// What a send may wait for.
enum class Sends {
  buffered,      // nothing: the message is copied away
  one_per_lane,  // the receive of the message before it on its lane: nothing is copied, and a lane
                 // carries one message at a time (lower.hpp). The executor needs no more than this
};

// All ranks on one thread, each as far as it gets.
class Walk {
 public:
  // Walks to the end, or until every rank waits. Keeps references to both.
  Walk(const Schedule& lowered, const Places& places, Sends sends);

  // The actions in the order in which they were passed.
  const std::vector<Place>& order() const { return order_; }
  bool finished(int rank) const;
  // Of a rank that has not finished: the action that it stands before, and the action of another
  // rank that this one waits for; none if it can go on.
  const Action& next_action(int rank) const { return schedule_.actions[rank][next_[rank]]; }
  std::optional<Action> waited_for(int rank) const;

 private:
  void pass(int rank);

  const Schedule& schedule_;
  const Places& places_;
  Sends sends_;
  std::vector<int> next_;  // the index of each rank's next action
  std::vector<Place> order_;
  std::map<Lane, Action> last_sent_;
};

// All actions, each after the one before it on its rank, and a computation after the send that it
// waits for. Throws Error if the schedule hangs.
std::vector<Place> in_order(const Schedule& lowered, const Places& places);

// When each action of one pipeline starts and ends. The actions are taken in order.
class Clocks {
 public:
  // Keeps references to both.
  Clocks(const Schedule& lowered, const Places& places);

  // The span of a send is that of its message, which takes so many seconds on its lane after those
  // before it. The rank goes on at once.
  void send(const Place& at, double seconds);
  // The span of a receive begins when it is posted. It ends when the message has arrived, which is
  // known when the computation that needs it has its turn.
  void receive(const Place& at);
  // Begins when the rank is free and its message has arrived.
  void compute(const Place& at, double seconds);

  Span& span(const Place& at) { return spans[at.rank][at.index]; }

  std::vector<std::vector<Span>> spans;  // [rank][index]
  std::vector<double> now;               // [rank] when its last action ended

 private:
  const Schedule& schedule_;
  const Places& places_;
  std::map<Lane, double> lane_free_;  // when each lane has carried what it was given
};

}  // namespace ringside::pipeline_parallel

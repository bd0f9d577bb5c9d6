// The control channel: how ranks tell each other about failures and about where they are. It
// carries no data of a collective.
//
// A rank that gives up tells the cause to all others. A rank that waits for long tells its
// position. A rank that leaves says goodbye: a connection that closes without a goodbye means that
// the process has died. So every survivor names the first cause, not only its silent neighbour.
//
// An executor asks the channel when its transport has nothing for poll_interval. All functions
// belong to the thread that runs the collectives.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/diagnostics/control_message.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

// Where a rank is: what it tells the others while it waits.
struct Position {
  std::uint64_t sequence = 0;  // the number of the call that it is in
  Call call;
  std::uint32_t step = 0;
  std::int32_t waiting_for = connecting;  // the peer whose message it lacks
  Clock::time_point heard{};              // when this rank was told
  CallHistory made;                       // its collectives so far, as far as it has told them
  bool left = false;                      // it has said goodbye

  // In place of a peer: it is between two calls, and waits for others to connect with it.
  static constexpr std::int32_t connecting = -1;
  bool connects() const { return waiting_for == connecting; }
  // It has made the call of that number in the group, and so has sent all of it.
  bool is_past(std::uint64_t number) const { return sequence + (connects() ? 1 : 0) > number; }

  // A rank that waits tells its position at this interval. A rank that has told nothing for three
  // intervals does not wait in a collective.
  static constexpr Seconds every{0.5};
  bool recent() const { return heard != Clock::time_point{} && Clock::now() - heard < 3 * every; }
};

class ControlChannel {
 public:
  // How the sentences name this group's ranks. Without this call, the group is the job.
  void set_names(RankNames names) { names_ = std::move(names); }
  const RankNames& names() const { return names_; }

  // For how long at most a rank waits for its transport before it asks the control channel.
  static constexpr Seconds poll_interval{0.05};

  // processes[r] is the process of rank r if it runs on this host, or 0; empty: none is known but
  // this one.
  ControlChannel(int rank, int size, std::vector<std::int64_t> processes = {});
  virtual ~ControlChannel() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Takes in the messages that have arrived; waits up to `patience` for the first. Throws
  // RankFailure if a rank has died or given up.
  void listen(Seconds patience = Seconds(0));

  // Throws RankFailure in any case. Call it when a transport reports ConnectionBroken: it waits up
  // to a second for the message that explains why.
  [[noreturn]] void explain(int peer, const std::string& symptom);

  // Tells every other rank why this one gives up. Their next listen() throws RankFailure with this
  // cause. This rank says no goodbye then.
  void abort(const RankFailure& cause) noexcept;

  // Tells every other rank where this one is, and its history() where that has changed.
  void tell_position(const Position& mine) noexcept;

  // The last positions that the ranks have told, indexed by rank. Waits up to `patience` until all
  // are recent. Throws as listen() does.
  std::vector<Position> positions(Seconds patience);

  // A rank of this host whose process a debugger holds; nothing if there is none.
  std::optional<int> rank_in_debugger() const;

  // The calls of this rank. The executor adds each collective before it begins.
  CallHistory& history() { return history_; }

 protected:
  // Passes a message on to `peer` without ever waiting. False if it was dropped: a position may be,
  // when the peer has not listened for long.
  virtual bool send(int peer, const ControlMessage& message) noexcept = 0;

  // Waits up to `patience` for a message, then calls accept() for each that has arrived, and lost()
  // for each peer that cannot send any more.
  virtual void receive(Seconds patience) = 0;

  void accept(int peer, const ControlMessage& message);
  void lost(int peer);
  void note_failure(int peer, const std::string& sentence);  // the first one counts

  // Destructors of derived classes call it, while send() still works.
  void say_goodbye() noexcept;

 private:
  struct Peer {
    Position position;
    std::uint64_t told_until = 0;  // the number of our last call that it has been told
    bool said_goodbye = false;
  };
  void send_with_history(ControlMessage message) noexcept;

  int rank_;
  std::vector<Peer> peers_;              // [rank]
  std::vector<std::int64_t> processes_;  // [rank]
  RankNames names_;
  CallHistory history_;
  FirstCause<RankFailure> failure_;  // the first that this rank has heard of
  bool gave_up_ = false;
};

}  // namespace ringside::collectives

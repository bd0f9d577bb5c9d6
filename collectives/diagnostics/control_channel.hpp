// The control channel: how ranks tell each other about failures and about where they are. It
// carries no data of a collective.
//
// A rank that gives up tells the cause to all others. A rank that waits for long tells its
// position. A rank that leaves says goodbye: a connection that closes without a goodbye means that
// the process has died. So every survivor names the first cause, not only its silent neighbour.
//
// An executor asks the channel when its transport has nothing for poll_interval. All functions
// belong to the thread that runs the collectives.
//
// A rank is in several groups, and each has its own channel. One that waits in a group answers in
// all of them: it tells there for whom it waits, and what it has heard of that rank's waits.
//
//     rank 1 waits for 0     rank 0 waits for 4     rank 4 waits for 7     rank 7 is stopped
//                     <- 0:4, 4:7            <- 4:7
//     tensor group 0..3      data group 0, 4        tensor group 4..7
//
// So ranks 0 and 1 blame 7 as rank 4 does. The channels of one rank share a WaitBoard with a mutex:
// whichever waits reads and tells for all, although another thread may use another group.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/diagnostics/control_message.hpp"
#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/rank_failure.hpp"
#include "collectives/diagnostics/wait_graph.hpp"
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
  bool elsewhere = false;                 // it waits in another group, or has failed there

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

class ControlChannel;

// What one rank hears in all its groups. Ranks have their numbers in the job.
struct WaitBoard {
  struct Told {
    std::vector<int> waits_for = {};
    Clock::time_point at{};                   // when the rank told it
    std::uint32_t hops = 0, number = 0;       // as in ToldWait
    std::optional<RankFailure> failure = {};  // why it has given up in some group
    Clock::time_point failed_at{};            // when this rank heard that

    // Each rank on the way may keep it for an interval.
    bool recent() const {
      return at != Clock::time_point{} && Clock::now() - at < (3 + hops) * Position::every;
    }
  };
  std::mutex mutex;  // guards the rest, and the state of the channels
  std::vector<ControlChannel*> channels;
  std::map<int, Told> told;  // [rank]
  std::uint32_t told_by_this_rank = 0;
};

class ControlChannel {
 public:
  // How the sentences name this group's ranks. Without this call, the group is the job.
  void set_names(RankNames names);
  const RankNames& names() const { return names_; }

  // For how long at most a rank waits for its transport before it asks the control channel.
  static constexpr Seconds poll_interval{0.05};

  // processes[r] is the process of rank r if it runs on this host, or 0; empty: none is known but
  // this one.
  ControlChannel(int rank, int size, std::vector<std::int64_t> processes = {});
  virtual ~ControlChannel() = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // `other` is a channel of the same rank in another group. Call it after set_names(), before all
  // other functions.
  void join(const ControlChannel& other);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  // Takes in the messages that have arrived in any group. Throws RankFailure if a rank of this one
  // has died or given up.
  void listen();

  // Throws RankFailure in any case. Call it when a transport reports ConnectionBroken: it waits up
  // to a second for the message that explains why. A rank that left because it had failed in
  // another group has told the cause here.
  [[noreturn]] void explain(int peer, const std::string& symptom);

  // Tells every other rank why this one gives up. Their next listen() throws RankFailure with this
  // cause. This rank says no goodbye then. Its other groups hear the cause too, and go on.
  void abort(const RankFailure& cause) noexcept;

  // Tells every other rank where this one is, and its history() where that has changed; and in all
  // groups, unless it connects, for whom it waits.
  void tell_position(const Position& mine) noexcept;

  // The wait that this rank has told has ended.
  void end_wait() noexcept;

  // Who waits for whom in the job, as far as this rank has heard recently.
  WaitGraph waits() const;

  // Why a rank of the job has given up in some group, if it has told nothing since.
  std::optional<RankFailure> failure_of(int rank_of_job) const;

  // The last positions that the ranks have told, indexed by rank. Waits up to `patience` until all
  // are recent. Throws as listen() does.
  std::vector<Position> positions(Seconds patience);

  // The name of a rank on this host, in any group, whose process a debugger holds; nothing if there
  // is none.
  std::optional<std::string> rank_in_debugger() const;

  // The calls of this rank. The executor adds each collective before it begins.
  CallHistory& history() { return history_; }

 protected:
  // Passes a message on to `peer` without ever waiting. False if it was dropped: a position may be,
  // when the peer has not listened for long.
  virtual bool send(int peer, const ControlMessage& message) noexcept = 0;

  // Calls accept() for each message that has arrived, and lost() for each peer that cannot send any
  // more. Never waits.
  virtual void receive() = 0;

  void accept(int peer, const ControlMessage& message);
  void lost(int peer);
  void note_failure(int peer, const std::string& sentence);  // the first one counts

  // Says goodbye. Destructors of derived classes call it, while send() still works.
  void leave() noexcept;

 private:
  struct Peer {
    Position position;
    std::uint64_t told_until = 0;  // the number of our last call that it has been told
    bool said_goodbye = false;
  };
  using Lock = std::lock_guard<std::mutex>;
  template <class Done>
  void listen_until(Done done, Seconds patience);
  void send_to_all(const ControlMessage& message) noexcept;
  void send_with_history(ControlMessage message) noexcept;
  void tell_waits() noexcept;
  void accept_waits(int r, const std::string& text);
  void accept_failure(int r, const ControlMessage& message);
  WaitGraph known_waits() const;

  int rank_;
  std::vector<Peer> peers_;              // [rank]
  std::vector<std::int64_t> processes_;  // [rank]
  RankNames names_;
  CallHistory history_;
  FirstCause<RankFailure> failure_;  // the first that this rank has heard of
  bool gave_up_ = false;
  int waiting_for_ = -1;  // the rank of the job; -1: none has been told
  std::shared_ptr<WaitBoard> board_;
};

}  // namespace ringside::collectives

// What an elastic rank and its launcher say to each other, over a pair of sockets that keep the
// bounds of messages (SOCK_SEQPACKET).
//
//     a rank      JoinRequest                  I have left my generation, and listen here
//     launcher    News{somebody_waits}         leave after this step: a rank waits to be taken in
//                 News{member_lost}            leave now: this generation cannot connect
//                 News{members}, Member...     a new generation: connect with these
//                 News{run_is_over}            end: the others have finished, or none can go on
//
// A generation is a group of ranks that train together: from one change of the membership to the
// next. The members are listed in the order of their ranks. Those with the most steps come first,
// so rank 0 holds the newest state.
#pragma once

#include <cstdint>

#include "collectives/bootstrap/sub_group_connector.hpp"

namespace ringside::training {

struct JoinRequest {
  std::uint32_t generation = 0;  // that the rank has left; 0: it comes for the first time
  std::int64_t steps = -1;  // that it has taken; -1: it has no state that others could go on with
  collectives::Endpoint endpoint{};
};

struct News {
  enum Kind : std::uint32_t { somebody_waits, member_lost, members, run_is_over };
  Kind kind = somebody_waits;
  std::uint32_t generation = 0;  // the one that it is about
  std::uint32_t too_few = 0;     // of `members`: 1 if they may only save, and end
  std::int32_t size = 0;         // of `members`: how many of Member follow
  std::int64_t steps = -1;       // of `members`: the steps that rank 0 has taken, or -1
};

struct Member {
  std::int32_t number = 0;  // in the job, as the launcher counts
  collectives::Endpoint endpoint{};
};

}  // namespace ringside::training

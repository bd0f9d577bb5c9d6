// UnexpectedMessage: another message has come than the one that a rank expected.
#pragma once

#include <string>

#include "base/error.hpp"
#include "collectives/rank_names.hpp"
#include "collectives/transport/message_header.hpp"

namespace ringside::collectives {

// The text names what differs.
class UnexpectedMessage : public Error {
 public:
  UnexpectedMessage(const MessageHeader& expected_header, const MessageHeader& seen_header,
                    int rank, int sender)
      : Error(difference(expected_header, seen_header, rank, sender, {})),
        expected(expected_header),
        seen(seen_header),
        self(rank),
        peer(sender) {}

  // The ranks are in calls of different numbers. The first mismatch may be in an earlier call.
  bool out_of_step() const {
    return seen.magic == expected.magic && seen.job == expected.job &&
           seen.sequence != expected.sequence;
  }
  std::string in_words(const RankNames& names) const {
    return difference(expected, seen, self, peer, names);
  }

  MessageHeader expected, seen;
  int self, peer;

 private:
  static std::string difference(const MessageHeader& expected, const MessageHeader& seen, int self,
                                int peer, const RankNames& names);
};

}  // namespace ringside::collectives

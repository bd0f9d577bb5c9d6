// Messages between two ranks outside of the order of a group's calls: with tags, from a given rank
// or from any, whether the receiver expects them yet or not.
//
//     Messages messages(group);                                   // every rank makes it
//     Work out = messages.send(std::span(mine), right, tag);
//     Work in = messages.recv(std::span(theirs), Messages::any_source, tag);
//     in.wait(), out.wait();                                      // in any order on any rank
//
// Every two ranks have a connection for them, which no collective uses, and one thread of each rank
// moves all bytes: a queue for each peer and direction. So no send waits for a recv, neither waits
// for a collective or for another peer, and two ranks that send to each other first cannot
// deadlock. A message that no recv expects yet is kept in memory of the receiver: two ranks that
// are to keep pace wait for answers, as the stages of a pipeline do.
//
// Matching is MPI's (MPI 4.1, section 3.5): a recv takes the first message with its tag that has
// arrived from its source; two messages from one rank with one tag are received in the order in
// which they were sent, and of two recvs that fit, the one that was made first takes the message.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/system/fork.hpp"
#include "collectives/buffer.hpp"
#include "collectives/work.hpp"

namespace ringside::collectives {

class ProcessGroup;
struct Streams;
struct Traffic;

class Messages {
 public:
  static constexpr int any_source = -1;

  // Connects with the other ranks, over sockets whatever the group's transport is. Every rank must
  // call it at the same point, as it calls split(). Afterwards the two do not need each other.
  // Throws the errors of split().
  explicit Messages(ProcessGroup& group);

  // Waits until what was sent has left this rank; ends each recv that has no message yet with an
  // Error.
  ~Messages();
  Messages(Messages&&) noexcept;

  // They return at once, and any thread may call them. Do not touch the buffer until the Work is
  // done: that of a send when the message has left this rank, received or not; that of a recv when
  // the message is in the buffer, which is memory of the host. Work::source() tells who sent it. A
  // label names the data in traces and errors.
  //
  // A Work::wait() for a message of one rank ends when nothing has moved for the group's timeout,
  // with a sentence as those of the group's calls. Work::wait_for() has a limit of its own, and a
  // wait for a message of any rank has none.
  //
  // Both sides must give the same type and count. Where they differ, where a rank dies, and where
  // one has left that a message is to come from or go to, every Work that is not done throws the
  // cause, here and on the other ranks, and so does every later call.
  Work send(ConstBuffer data, int to, std::int32_t tag = 0, std::string_view label = {});
  Work recv(Buffer data, int from, std::int32_t tag = 0, std::string_view label = {});

  int size() const;         // ranks
  Traffic traffic() const;  // what this rank has sent since they were made
  CallTimes times() const;  // of callers that waited

  // Ends what is under way, and makes the calls of all other ranks throw `cause`.
  void abort(const std::string& cause) noexcept;

 private:
  static Streams connect(ProcessGroup& group);  // in process_group.cpp
  class Engine;
  std::unique_ptr<Engine, DeleteInOwner<Engine>> engine_;
};

}  // namespace ringside::collectives

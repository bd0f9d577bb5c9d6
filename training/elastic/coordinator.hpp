// Coordinator: decides who takes part in an elastic job. It lives in the launcher, and talks to the
// Membership of each rank (membership.hpp).
//
// A generation is formed when all of its predecessor's members that still live have left it and
// ask to join: with them and with the ranks that have come meanwhile. Members that train learn that
// a rank waits, and leave after their step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/file_descriptor.hpp"
#include "training/elastic/membership_messages.hpp"

namespace ringside::training {

class Coordinator {
 public:
  Coordinator(int smallest, int largest) : smallest_(smallest), largest_(largest) {}

  // For rank `number`, which starts now, perhaps in the place of a lost one: the socket that its
  // process inherits. The launcher closes it once the process runs.
  FileDescriptor add(int number);
  // What tells that process of it (Membership::variable).
  std::string variable_for(const FileDescriptor& inherited) const;

  void lost(int number);      // and another process may take its place
  void finished(int number);  // it has reached the end of the run
  // Ranks that are not lost: at most this many can train from now on.
  int left() const { return static_cast<int>(ranks_.size()); }
  bool run_is_over() const { return over_; }
  int smallest() const { return smallest_; }

  std::vector<int> sockets() const;  // to poll
  // Takes what ranks have sent, and forms the next generation if it can be. Returns a rank that has
  // not left its generation for `patience` while others wait: it is stuck.
  std::optional<int> serve(Seconds patience);

  // Why the job cannot go on although ranks are left.
  const std::optional<std::string>& problem() const { return problem_; }

 private:
  enum class State { starting, waits, trains };
  struct Rank {
    FileDescriptor socket;
    State state = State::starting;
    JoinRequest request = {};
  };
  int count(State state) const;
  void form_generation();
  void end_waiting();
  void tell_members(News::Kind kind);

  int smallest_, largest_;
  std::map<int, Rank> ranks_;  // those that are not lost, by number
  std::uint32_t generation_ = 0;
  bool had_state_ = false;      // a rank has come with the state of the run
  bool told_to_leave_ = false;  // the members of this generation
  bool over_ = false;
  std::optional<Deadline> must_have_left_;
  std::optional<std::string> problem_;
};

}  // namespace ringside::training

// Coordinator: decides who takes part in an elastic job. It lives in the process of the launcher,
// and talks to the Membership of each rank (membership.hpp).
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
#include "base/system/file_descriptor.hpp"
#include "collectives/bootstrap/job_members.hpp"
#include "training/elastic/elastic_sizes.hpp"
#include "training/elastic/membership_messages.hpp"

namespace ringside::training {

class Coordinator final : public collectives::JobMembers {
 public:
  // So many processes may take the place of lost ranks.
  Coordinator(ElasticSizes sizes, int replacements) : sizes_(sizes), replacements_(replacements) {}

  // Adds Membership::variable, and returns the process's end of a pair of sockets.
  FileDescriptor start(int number, std::map<std::string, std::string>& variables) override;
  Loss lost(int number) override;
  void finished(int number) override;  // it has reached the end of the run

  std::vector<int> descriptors() const override;
  // Takes what ranks have sent, and forms the next generation if it can be. Returns a rank that has
  // not left its generation for the timeout of a call while others wait: it is stuck.
  std::optional<int> serve() override;
  const std::optional<std::string>& problem() const override { return problem_; }

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

  ElasticSizes sizes_;
  int replacements_;           // that are left
  std::map<int, Rank> ranks_;  // those that are not lost, by number
  std::uint32_t generation_ = 0;
  bool had_state_ = false;      // a rank has come with the state of the run
  bool told_to_leave_ = false;  // the members of this generation
  bool over_ = false;
  std::optional<Deadline> must_have_left_;
  std::optional<std::string> problem_;
};

}  // namespace ringside::training

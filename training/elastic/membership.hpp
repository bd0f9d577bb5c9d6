// Membership: a rank's place in an elastic job. The launcher (coordinator.hpp)
// decides who belongs to a generation; the ranks connect with each other.
//
//     membership.join(steps)       leaves the generation, waits for the next, connects
//     ... train ...
//     membership.somebody_waits()  after each step: whether to join again
//     RankFailure                  a member is lost: join again
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/system/file_descriptor.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"
#include "training/elastic/elastic_sizes.hpp"
#include "training/elastic/membership_messages.hpp"

namespace ringside::training {

class Membership {
 public:
  // "FD:MIN:MAX": a socket to the launcher that this process has inherited, and the sizes between
  // which the launcher keeps the job.
  static constexpr const char* variable = "RINGSIDE_ELASTIC";

  // Throws Error unless the environment has the variable. `backend` is tcp, shm or auto.
  Membership(collectives::RankInfo rank_info, std::string backend);

  // Those of the launcher that started this process, or nothing.
  static std::optional<ElasticSizes> sizes_from_environment();

  // Whether a rank waits to be taken in, or a member is lost.
  bool somebody_waits();

  // Waits until the launcher has formed the next generation, and connects with its members. `steps`
  // is what this rank has taken; -1: it has no state yet. No group may be open. Nothing, if the
  // others have finished the run meanwhile, or no rank has its state any more. Throws Error if the
  // launcher has ended the job.
  std::optional<collectives::ProcessGroup> join(std::int64_t steps);

  const std::vector<int>& members() const { return members_; }  // [rank] its number in the job
  // The steps that rank 0 had taken when it joined; -1: it had no state. A rank with other steps
  // gets its state.
  std::int64_t newest_step() const { return newest_step_; }
  // Fewer are left than the launcher was told, and no others come: the members save, and end.
  bool too_few() const { return too_few_; }

 private:
  std::optional<News> receive(std::vector<Member>& members, bool wait);
  News next_generation(std::vector<Member>& members);

  collectives::RankInfo rank_info_;
  FileDescriptor launcher_;
  std::uint32_t generation_ = 0;
  std::vector<int> members_;
  std::int64_t newest_step_ = -1;
  bool leave_ = false;  // the launcher has asked this generation to
  bool too_few_ = false;
};

}  // namespace ringside::training

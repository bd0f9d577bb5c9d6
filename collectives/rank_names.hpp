// How sentences name the ranks of a group: by their numbers in the job, also in a sub-group, where
// ranks count from 0, and with their coordinates where the job is a mesh: "7 (dp=1,tp=3)".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringside::collectives {

class RankNames {
 public:
  RankNames() = default;  // of the job itself, which is no mesh

  // ranks_of_job[r] is the number in the job of the group's rank r; empty: the group is the job.
  // `mesh` is "dp=2,tp=4", with the axis last that varies fastest; empty: the job is no mesh.
  explicit RankNames(std::vector<int> ranks_of_job, std::string mesh = {})
      : ranks_of_job_(std::move(ranks_of_job)), mesh_(std::move(mesh)) {}

  const std::string& mesh() const { return mesh_; }
  RankNames in_mesh(std::string_view mesh) const {
    return RankNames(ranks_of_job_, std::string(mesh));
  }
  // Of a sub-group of these ranks.
  RankNames of(std::vector<int> members) const {
    for (int& r : members) r = in_job(r);
    return RankNames(std::move(members), mesh_);
  }

  // A number that is no rank of the group, as a damaged message may hold it, stays as it is.
  int in_job(int r) const;
  std::string operator()(int r) const;  // "7 (dp=1,tp=3)"

  // "rank 7 (dp=1,tp=3)", "ranks 0 (dp=0,tp=0) and 7 (dp=1,tp=3)"; without a mesh "ranks 0 to 2".
  // `ranks` is ascending and not empty.
  std::string enumerate(const std::vector<int>& ranks) const;

 private:
  std::vector<int> ranks_of_job_;  // [rank]
  std::string mesh_;
};

}  // namespace ringside::collectives

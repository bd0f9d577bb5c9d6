// ElasticRun: one rank's part in a run whose ranks come and go, from each generation to the next
// (membership_messages.hpp). Every rank holds the whole model and the state of its optimizer, so a
// rank that comes, or has missed a step, gets both from rank 0.
#pragma once

#include <optional>
#include <string>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"
#include "training/elastic/membership.hpp"
#include "training/run.hpp"
#include "training/strategies/single_process.hpp"

namespace ringside::training {

class ElasticRun final : public Run {
 public:
  // As Run. `backend` is tcp, shm or auto. Throws Error unless an elastic job's launcher has
  // started this process.
  ElasticRun(const Plan& plan, collectives::RankInfo rank_info, std::string backend,
             const transformer::Corpus& corpus, Reporter& reporter);

  // Trains to the last step, or until a signal or too few ranks end the run. An error other than a
  // lost rank ends it on all ranks, and is thrown.
  void run();

 private:
  Observer observer() override;
  void meet(collectives::ProcessGroup& group);
  void share_state(ParallelStrategy& strategy, collectives::ProcessGroup& group, bool is_new);
  bool is_over(collectives::ProcessGroup& group);

  Membership membership_;
  SingleProcess alone_;             // the trainer's strategy before the first generation
  std::optional<StepReport> last_;  // of this rank
};

}  // namespace ringside::training

// ElasticRun: one rank's part in a run whose ranks come and go, from each generation to the next
// (membership_messages.hpp). Every rank holds the whole model and the state of its optimizer, so a
// rank that comes, or has missed a step, gets both from rank 0.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/process_group.hpp"
#include "training/elastic/membership.hpp"
#include "training/plan.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "training/strategies/single_process.hpp"
#include "training/trainer.hpp"
#include "transformer/data/corpus.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

// What a rank does beside the steps: `ringside train` prints and saves. Every rank of a generation
// gets the same calls.
class ElasticRank {
 public:
  virtual ~ElasticRank() = default;

  // A new group, before rank 0 has heard from this rank.
  virtual void meet(collectives::ProcessGroup& group) = 0;

  struct Generation {
    collectives::ProcessGroup& group;
    Trainer& trainer;        // in the state that its ranks go on from
    bool is_first;           // nobody had taken a step
    std::string members;     // "ranks 0, 1 and 3 after step 50: rank 2 is gone: ..."
    const StepReport* last;  // of the last step, if this rank has taken it; else nullptr
  };
  virtual void begin(const Generation& generation) = 0;  // before the first step of it
  virtual void end() = 0;                                // the run is over
};

class ElasticRun {
 public:
  // Makes the model and the optimizer of the plan. `plan` and `corpus` must outlive it. `backend`
  // is tcp, shm or auto. Construct it on the thread that will compute. Throws Error unless an
  // elastic job's launcher has started this process.
  ElasticRun(const Plan& plan, collectives::RankInfo rank_info, std::string backend,
             const transformer::Corpus& corpus, Observer observer);
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  // Trains to the last step, or until a signal or too few ranks end the run. An error other than a
  // lost rank ends it on all ranks, and is thrown.
  void run(ElasticRank& rank);

 private:
  Observer watched(Observer observer);
  void share_state(ParallelStrategy& strategy, collectives::ProcessGroup& group, bool is_new);
  bool is_over(collectives::ProcessGroup& group);

  const Plan& plan_;
  Membership membership_;
  std::unique_ptr<transformer::Model> model_;
  SingleProcess alone_;             // the trainer's strategy before the first generation
  std::optional<StepReport> last_;  // of this rank
  Trainer trainer_;
};

}  // namespace ringside::training

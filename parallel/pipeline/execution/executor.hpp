// The executor: carries out one rank's actions of a pipeline schedule, one after the other.
//
//     for each action of this rank
//         1RECV_F0   receive into a new tensor           lanes.hpp
//         1F0        forward, with that tensor           stage_work.hpp
//         1SEND_F0   start to send what forward returned; go on at once
//         ...
//
// A breakpoint in Executor::carry_out shows a rank's whole step, action by action.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/pipeline/execution/lanes.hpp"
#include "parallel/pipeline/execution/stage_work.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

class Executor {
 public:
  // `lowered` comes from lower(). `names` are the ranks' names in errors; empty means "rank 1 of
  // the pipeline". All arguments must outlive the executor.
  Executor(const Schedule& lowered, int rank, Lanes& lanes, StageWork& work,
           std::vector<std::string> names = {});

  // Carries out this rank's actions. Returns when all that it sent has been received. Every rank
  // of the pipeline must call it. If an action fails on any rank, or a message does not come
  // before the group's deadline, run() throws Error on all ranks, with one sentence that names the
  // stage; the lanes cannot be used any more.
  //
  // If this thread records a Trace, each computation is a span in it: "forward" about "1F0".
  void run();

 private:
  void carry_out(const Action& action);
  void compute(const Action& action);
  void hand_on(const Action& action, autograd::Tensor made);
  void send(const Action& action);
  void receive(const Action& action);
  autograd::Tensor take(const Action& message, const Action& by);
  [[noreturn]] void give_up(const std::string& cause);
  std::string describe(const Action& action) const;
  std::string stage_name(int stage) const;

  const Schedule& schedule_;
  int rank_;
  Lanes& lanes_;
  StageWork& work_;
  std::vector<std::string> names_;
  // The tensors between two actions, each made by one and used up by another: by the receive that
  // brought it, or would bring it from another rank, or by the send that will carry it away.
  std::map<Action, autograd::Tensor> held_;
};

// Only the forward pass of `micro_batches` through stages that are placed so; with messages.
Schedule forward_only(const std::vector<int>& rank_of, int micro_batches);

}  // namespace ringside::pipeline_parallel

// The executor: carries out one rank's actions of a pipeline schedule, one after the other.
//
//     for each action of this rank
//         1RECV_F0   post a new tensor to receive into   messages.hpp
//         1F0        wait until it is there; forward     stage_work.hpp
//         1SEND_F0   start to send what forward returned; go on at once
//         ...
//
// Messages travel while the stages compute, into tensors that the schedule posts when they are sent
// (lower.hpp). One that comes earlier is kept by Messages. The tag of a message says which tensor
// it is, so no message waits for another.
//
// A breakpoint in Executor::carry_out shows a rank's whole step, action by action.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/messages.hpp"
#include "ddp/scoped_work.hpp"
#include "parallel/pipeline/execution/stage_work.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

class Executor {
 public:
  // `lowered` comes from lower(). `messages` has a rank for each rank of the schedule. `names` are
  // the ranks' names in errors; empty means "rank 1 of the pipeline". All arguments must outlive
  // the executor.
  Executor(const Schedule& lowered, int rank, collectives::Messages& messages, StageWork& work,
           std::vector<std::string> names = {});

  // Carries out this rank's actions. Returns when all that it sent has left this rank. Every rank
  // of the pipeline must call it. If an action fails on any rank, or a message does not come
  // before the group's deadline, run() throws Error on all ranks, with one sentence that names the
  // stage; the messages cannot be used any more.
  //
  // If this thread records a Trace, each computation is a span in it: "forward" about "1F0".
  void run();

 private:
  void carry_out(const Action& action);
  void compute(const Action& action);
  void hand_on(const Action& action, autograd::Tensor made);
  void send(const Action& action);
  void post(const Action& receive);
  void wait_for(const Action& receive);
  void free_what_has_left();
  autograd::Tensor take(const Action& message, const Action& by);
  [[noreturn]] void give_up(const std::string& cause);
  std::string describe(const Action& action) const;
  std::string stage_name(int stage) const;

  // A message on its way, with the tensor that it comes from or goes to.
  struct Message {
    autograd::Tensor tensor;
    ddp::ScopedWork work;  // after the tensor
  };

  const Schedule& schedule_;
  int rank_;
  collectives::Messages& messages_;
  StageWork& work_;
  std::vector<std::string> names_;
  std::optional<Action> doing_;  // or waiting for
  // The tensors between two actions, each made by one and used up by another: by the receive that
  // brought it, or would bring it from another rank, or by the send that will carry it away.
  std::map<Action, autograd::Tensor> held_;
  std::list<Message> leaving_;
  std::map<Action, Message> posted_;
};

// Only the forward pass of `micro_batches` through stages that are placed so; with messages.
Schedule forward_only(const std::vector<int>& rank_of, int micro_batches);

}  // namespace ringside::pipeline_parallel

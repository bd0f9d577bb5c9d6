// A pipeline schedule is data: it lists what each rank does, in which order, and does none of it.
//
// Reading order: this file, generators/gpipe.hpp, generators/one_f_one_b.hpp, lower.hpp,
// proof/verify.hpp, proof/timing.hpp.
//
// The layers of a model are divided into STAGES, numbered from 0 in the order of the forward pass,
// and a batch into MICRO-BATCHES. A stage lives on one rank; a rank may hold several stages. Each
// stage runs each micro-batch forward and backward once. Between two stages travel activations
// forward and gradients backward:
//
//     stage s        ── activations of micro-batch i ──▶        stage s+1
//                    ◀── gradients of micro-batch i ───
//
// Backward may be one action, or two: the gradient of the stage's input, which the stage before
// waits for, and the gradient of its weights, which nobody waits for (zb_h1.hpp).
//
// A generator writes computations only. lower() adds the messages between ranks and the reduction
// of each stage's gradients over the data-parallel ranks. verify() proves either form right.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace ringside::pipeline_parallel {

// What an action does. On the right: as torch.distributed.pipelining writes it, for stage 2 and
// micro-batch 0.
enum class Kind {
  forward,             // 2F0
  backward,            // 2B0           gradients of the stage's input and of its weights
  backward_input,      // 2I0           the gradient of the input alone
  backward_weight,     // 2W0           the gradient of the weights alone
  send_activation,     // 2SEND_F0      the stage's output, to stage 3
  receive_activation,  // 2RECV_F0      the stage's input, from stage 1
  send_gradient,       // 2SEND_B0      the gradient of the stage's input, to stage 1
  receive_gradient,    // 2RECV_B0      the gradient of the stage's output, from stage 3
  reduce_gradients,    // 2REDUCE_GRAD  over the data-parallel ranks; has no micro-batch
};

constexpr int no_micro_batch = -1;

struct Action {
  Kind kind;
  int stage;
  int micro_batch = no_micro_batch;
  auto operator<=>(const Action&) const = default;
};

constexpr bool is_computation(Kind kind) {
  return kind <= Kind::backward_weight;
}
constexpr bool is_send(Kind kind) {
  return kind == Kind::send_activation || kind == Kind::send_gradient;
}
constexpr bool is_receive(Kind kind) {
  return kind == Kind::receive_activation || kind == Kind::receive_gradient;
}

constexpr bool carries_gradient(Kind message) {
  return message == Kind::send_gradient || message == Kind::receive_gradient;
}

// The stage at the other end of a send or a receive. stage+1 of the last stage, and -1 before the
// first, do not exist.
constexpr int other_stage(const Action& message) {
  const bool later =
      message.kind == Kind::send_activation || message.kind == Kind::receive_gradient;
  return later ? message.stage + 1 : message.stage - 1;
}

// The action at the other end of a message: {2SEND_F0} is received by {3RECV_F0}.
constexpr Action matching(const Action& message) {
  constexpr Kind other_end[] = {Kind::receive_activation, Kind::send_activation,
                                Kind::receive_gradient, Kind::send_gradient};
  const int kind = static_cast<int>(message.kind) - static_cast<int>(Kind::send_activation);
  return {other_end[kind], other_stage(message), message.micro_batch};
}

// Whether an action needs a tensor of a neighbouring stage, and makes one for another: F, B and I
// do, W does not. Each tensor is named as the message that carries it between ranks: {2F0} needs
// {2RECV_F0} and makes {2SEND_F0}.
constexpr bool has_neighbours(Kind kind) {
  return is_computation(kind) && kind != Kind::backward_weight;
}
constexpr Action input_of(const Action& computation) {
  const bool forward = computation.kind == Kind::forward;
  return {forward ? Kind::receive_activation : Kind::receive_gradient, computation.stage,
          computation.micro_batch};
}
constexpr Action output_of(const Action& computation) {
  const bool forward = computation.kind == Kind::forward;
  return {forward ? Kind::send_activation : Kind::send_gradient, computation.stage,
          computation.micro_batch};
}

struct Schedule {
  int micro_batches = 0;
  std::vector<int> rank_of;                  // rank_of[s]: the rank that holds stage s
  std::vector<std::vector<Action>> actions;  // actions[r]: what rank r does, in order

  int ranks() const { return static_cast<int>(actions.size()); }
  int stages() const { return static_cast<int>(rank_of.size()); }
  // The first stage has no input, and the last stage no gradient of its result.
  bool has_stage(int stage) const { return stage >= 0 && stage < stages(); }
  bool operator==(const Schedule&) const = default;
};

// "F", "SEND_F", "REDUCE_GRAD".
const char* letters_of(Kind kind);

// "2F0", "2SEND_F0", "2REDUCE_GRAD".
std::string text_of(const Action& action);

// The stages of a rank, ascending.
std::vector<int> stages_of(const Schedule& schedule, int rank);

// Whether any rank sends or receives: whether lower() has been here, or a file lists messages.
bool has_messages(const Schedule& schedule);
// Whether any rank reduces gradients.
bool has_reductions(const Schedule& schedule);

// The layers first .. end - 1.
struct LayerRange {
  std::int64_t first, end;
  std::int64_t count() const { return end - first; }
};

// The layers of a stage: floor + remainder. The remainder goes first to the stages in between, a
// layer each, because the first one also has the embedding and the last one the head; then to the
// first. Llama 3 divides its 126 layers over 16 stages so: 7, 8 ... 8, 7 (table 4 of its report).
//
//     7 layers    2 stages: 4 3    3 stages: 2 3 2    4 stages: 2 2 2 1
LayerRange layers_of_stage(std::int64_t layers, int stages, int stage);

// Loop: stage s lives on rank s modulo `ranks`. With 4 ranks and 2 stages per rank:
//
//     rank 0    rank 1    rank 2    rank 3
//     stage 0 ▶ stage 1 ▶ stage 2 ▶ stage 3 ─┐
//   ┌────────────────────────────────────────┘
//   └▶stage 4 ▶ stage 5 ▶ stage 6 ▶ stage 7
std::vector<int> loop_placement(int ranks, int stages_per_rank = 1);

// V: down the ranks and up again, two stages per rank. The first and the last stage share a rank,
// and the turn needs no message.
//
//     rank 0    rank 1    rank 2    rank 3
//     stage 0 ▶ stage 1 ▶ stage 2 ▶ stage 3 ─┐
//     stage 7 ◀ stage 6 ◀ stage 5 ◀ stage 4 ◀┘
std::vector<int> v_placement(int ranks);

}  // namespace ringside::pipeline_parallel

// The options that change the numbers of a run, each named once. The command line, the comparison
// between ranks, the metadata of a checkpoint and the changes of a resumed run follow these lists.
#pragma once

#include <array>
#include <utility>

#include "training/trainer.hpp"
#include "transformer/config.hpp"

namespace ringside::training {

// Calls visit(flag, key, field) with the name of each option at the command line ("" if it has
// none), its name in the metadata of a checkpoint, and its field.
template <class Visit>
void for_each_trainer_option(Visit&& visit) {
  visit("--steps", "steps", &TrainerOptions::steps);
  visit("--batch", "batch", &TrainerOptions::batch);
  visit("--accumulate", "accumulate", &TrainerOptions::accumulate);
  visit("--sequence", "sequence", &TrainerOptions::sequence);
  visit("--seed", "seed", &TrainerOptions::seed);
  visit("--lr", "learning_rate", &TrainerOptions::learning_rate);
  visit("--min-lr", "min_learning_rate", &TrainerOptions::min_learning_rate);
  visit("--warmup", "warmup", &TrainerOptions::warmup);
  visit("--clip", "clip", &TrainerOptions::clip);
  visit("--weight-decay", "weight_decay", &TrainerOptions::weight_decay);
  visit("", "beta1", &TrainerOptions::beta1);
  visit("", "beta2", &TrainerOptions::beta2);
}

inline constexpr std::array<std::pair<const char*, std::int64_t transformer::Config::*>, 8>
    model_sizes{{{"--vocabulary", &transformer::Config::vocabulary},
                 {"--d-model", &transformer::Config::d_model},
                 {"--layers", &transformer::Config::layers},
                 {"--heads", &transformer::Config::heads},
                 {"--kv-heads", &transformer::Config::kv_heads},
                 {"--d-ff", &transformer::Config::d_ff},
                 {"--experts", &transformer::Config::experts},
                 {"--experts-per-token", &transformer::Config::experts_per_token}}};

inline const char* name_of(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? "sgd" : "adamw";
}

}  // namespace ringside::training

// Ranks that an outer launcher starts with different options say which option differs, on which
// ranks, and in what, instead of training on.

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "collectives/ranks/run_threads.hpp"
#include "tests/cli/run_program.hpp"
#include "training/plan/options.hpp"
#include "training/plan/same_options.hpp"

using namespace ringside::testing;
using ringside::training::Plan;
using ringside::training::shared_options;

namespace {

// Three ranks of `ringside train`; rank 1 is given other options than ranks 0 and 2.
Outcome train_apart(const std::string& options, const std::string& of_rank_1) {
  return run_program({ringside_binary, "launch", "-n", "3", "--", "sh", "-c",
                      R"(if [ $RANK = 1 ]; then options=$2; else options=$1; fi
          exec "$0" train --threads 1 --steps 2 --sequence 16 --batch 6 $options)",
                      ringside_binary, options, of_rank_1});
}

}  // namespace

TEST_CASE("options that differ between ranks are named with ranks and values") {
  struct Case {
    std::string options, of_rank_1, difference;
  };
  const std::vector<Case> cases{
      {"--lr 0.1 --min-lr 0", "--lr 0.2 --min-lr 0", "--lr is 0.1 on ranks 0 and 2, 0.2 on rank 1"},
      {"--min-lr 0.01", "--min-lr 0.02", "--min-lr is 0.01 on ranks 0 and 2, 0.02 on rank 1"},
      {"--optimizer sgd --lr 0.1", "--optimizer adamw --lr 0.1",
       "--optimizer is sgd on ranks 0 and 2, adamw on rank 1"},
      {"--clip 1", "--clip 0.5", "--clip is 1 on ranks 0 and 2, 0.5 on rank 1"},
      {"--weight-decay 0", "--weight-decay 0.1",
       "--weight-decay is 0 on ranks 0 and 2, 0.1 on rank 1"},
      {"--warmup 0", "--warmup 1", "--warmup is 0 on ranks 0 and 2, 1 on rank 1"},
      {"", "--batch 12", "--batch is 6 on ranks 0 and 2, 12 on rank 1"},
      {"--seed 7", "--seed 8", "--seed is 7 on ranks 0 and 2, 8 on rank 1"},
      {"", "--sequence 32", "--sequence is 16 on ranks 0 and 2, 32 on rank 1"},
      {"--accumulate 2", "", "--accumulate is 2 on ranks 0 and 2, 1 on rank 1"},
      {"--recompute full", "", "--recompute is full on ranks 0 and 2, none on rank 1"},
      {"--eval-every 1", "", "--eval-every is 1 on ranks 0 and 2, 0 on rank 1"},
      {"--eval-batches 1", "--eval-batches 2", "--eval-batches is 1 on ranks 0 and 2, 2 on rank 1"},
      {"--stop-at 1", "", "--stop-at is 1 on ranks 0 and 2, 2 on rank 1"},
      {"--layers 1", "--layers 2", "--layers is 1 on ranks 0 and 2, 2 on rank 1"},
      {"--tied-head", "", "--tied-head is given on ranks 0 and 2, not given on rank 1"},
      {"--dtype bf16", "", "--dtype is bf16 on ranks 0 and 2, fp32 on rank 1"},
      {"", "--device emulated", "--device is cpu on ranks 0 and 2, emulated on rank 1"},
      {"--parallel naive", "--parallel zero2",
       "--parallel is naive on ranks 0 and 2, zero2 on rank 1"},
      {"--parallel bucketed --bucket-mb 1", "--parallel bucketed --bucket-mb 2",
       "--bucket-mb is 1 on ranks 0 and 2, 2 on rank 1"},
      {"--mesh dp=3 --heads 3 --d-model 96 --d-ff 258 --vocabulary 258",
       "--mesh tp=3 --heads 3 --d-model 96 --d-ff 258 --vocabulary 258",
       "--mesh is dp=3 on ranks 0 and 2, tp=3 on rank 1"},
      {"--sample 4", "", "--sample is 4 on ranks 0 and 2, 0 on rank 1"},
      {"--sample 4", "--sample 4 --temperature 0",
       "--temperature is 0.8 on ranks 0 and 2, 0 on rank 1"},
  };
  for (const auto& [options, of_rank_1, difference] : cases) {
    CAPTURE(options);
    CAPTURE(of_rank_1);
    const auto outcome = train_apart(options, of_rank_1);
    CHECK(outcome.exit_code == 1);
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(contains(outcome.err,
                     fmt::format("[{}] ringside: the ranks have different options: ", rank)));
    }
    CHECK(contains(outcome.err, difference));
    CHECK(contains(outcome.err, ". Start every rank with the same options\n"));
  }
}

namespace {

// The names of each option in the help of `train`: {"--accumulate", "--micro-batches"}.
std::vector<std::set<std::string>> options_of_train() {
  std::istringstream help(run_program({ringside_binary, "train", "--help-all"}).out);
  std::vector<std::set<std::string>> options;
  for (std::string line; std::getline(help, line);) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == 0 || begin == line.npos || begin > 4 || line[begin] != '-') continue;
    std::istringstream words(line.substr(begin, line.find(' ', begin) - begin));
    options.emplace_back();
    for (std::string name; std::getline(words, name, ',');) options.back().insert(name);
  }
  return options;
}

// Options that a rank may choose for itself, or that are compared in another way.
const std::set<std::string> a_ranks_own{
    "--help", "--help-all", "--ranks",
    "--backend",                              // compared when the ranks meet
    "--data",                                 // the trainer compares the text and the vocabulary
                                              // themselves
    "--model",                                // a name for sizes, which are compared
    "--link", "--threads", "--memory-limit",  // of a rank and its host
    "--metrics", "--overwrite",               // only rank 0 writes
    "--algorithm",                            // compared in each call
    "--elastic", "--restarts",                // of the launcher
    "--accept-changes",                       // of a checkpoint's files, which are on its host
    "--against",                              // of who starts the ranks
};

}  // namespace

TEST_CASE("every option of train is compared between ranks, or known as a rank's own") {
  std::set<std::string> compared;
  for (const auto& [name, value] : shared_options({})) compared.insert(name);
  const auto options = options_of_train();
  CHECK(options.size() > compared.size());  // otherwise the help was not understood
  std::set<std::string> known;
  for (const auto& names : options) {
    const auto is_in = [&](const std::set<std::string>& list) {
      return std::any_of(names.begin(), names.end(),
                         [&](const std::string& name) { return list.contains(name); });
    };
    CAPTURE(fmt::format("{}", fmt::join(names, ",")));
    CHECK(is_in(compared) != is_in(a_ranks_own));
    known.insert(names.begin(), names.end());
  }
  for (const auto& list : {compared, a_ranks_own})
    for (const auto& name : list) {
      CAPTURE(name);
      CHECK(known.contains(name));  // otherwise it is a name of no option
    }
}

TEST_CASE("all options that differ are named in the order of the help") {
  const auto outcome = train_apart("--lr 0.1 --seed 1", "--seed 2 --lr 0.2");
  CHECK(contains(outcome.err,
                 "[0] ringside: the ranks have different options: --lr is 0.1 on ranks 0 and 2, "
                 "0.2 on rank 1; --min-lr is 0.01 on ranks 0 and 2, 0.02 on rank 1; --seed is 1 "
                 "on ranks 0 and 2, 2 on rank 1. Start every rank with the same options\n"));
}

TEST_CASE("backends that differ between ranks are named") {
  const auto outcome = train_apart("--backend tcp", "--backend shm");
  CHECK(outcome.exit_code == 1);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    CHECK(contains(outcome.err, fmt::format("[{}] ringside: ", rank)));
  }
  CHECK(contains(outcome.err,
                 "the ranks have different backends: rank 0 has tcp, but rank 1 has shm. Start "
                 "every rank with the same --backend (or RINGSIDE_BACKEND)\n"));
}

namespace {

// An option, and a change of what it sets in a plan.
struct Change {
  std::string option;
  std::function<void(Plan&)> make;
};

// A plan in which every option means something.
Plan plan_on_a_mesh() {
  Plan plan;
  plan.strategy = "naive";
  plan.mesh.shape = ringside::parallel::MeshShape("pp=2,tp=2");
  ringside::training::plan_schedule(plan.mesh, "1f1b", 4);
  return plan;
}

std::vector<Change> changes_of_a_plan() {
  return {
      {"--vocabulary", [](auto& plan) { plan.config.vocabulary = 300; }},
      {"--d-model", [](auto& plan) { plan.config.d_model = 64; }},
      {"--layers", [](auto& plan) { plan.config.layers = 8; }},
      {"--heads", [](auto& plan) { plan.config.heads = 8; }},
      {"--kv-heads", [](auto& plan) { plan.config.kv_heads = 2; }},
      {"--d-ff", [](auto& plan) { plan.config.d_ff = 128; }},
      {"--experts", [](auto& plan) { plan.config.experts = 8; }},
      {"--experts-per-token", [](auto& plan) { plan.config.experts_per_token = 1; }},
      {"--balance", [](auto& plan) { plan.config.balance = 0.1; }},
      {"--tied-head", [](auto& plan) { plan.config.tied_head = true; }},
      {"--dtype", [](auto& plan) { plan.dtype = ringside::autograd::DType::bf16; }},
      {"--init", [](auto& plan) { plan.init = "model"; }},
      {"--resume", [](auto& plan) { plan.resumed.emplace().step = 7; }},
      {"--parallel", [](auto& plan) { plan.strategy = "zero3"; }},
      {"--bucket-mb", [](auto& plan) { plan.bucket_mb = 10; }},
      {"--mesh", [](auto& plan) { plan.mesh.shape = ringside::parallel::MeshShape("pp=2,dp=2"); }},
      {"--sequence-parallel", [](auto& plan) { plan.mesh.sequence_parallel = true; }},
      {"--tensor-parallel", [](auto& plan) { plan.mesh.tensor_library = "mine.so"; }},
      {"--context",
       [](auto& plan) {
         plan.mesh.context.exchange = ringside::context_parallel::Exchange::ulysses;
       }},
      {"--token-order",
       [](auto& plan) {
         plan.mesh.context.order = ringside::context_parallel::TokenOrder::contiguous;
       }},
      {"--schedule", [](auto& plan) { plan_schedule(plan.mesh, "gpipe", 4); }},
      {"--stages-per-rank", [](auto& plan) { plan.mesh.stages_per_rank = 2; }},
      {"--steps", [](auto& plan) { plan.options.steps = 9; }},
      {"--batch",
       [](auto& plan) {
         plan.options.batch *= 2;
         plan.options.validation_windows *= 2;  // as many batches
       }},
      {"--accumulate", [](auto& plan) { plan.options.accumulate = 2; }},
      {"--sequence", [](auto& plan) { plan.options.sequence = 32; }},
      {"--seed", [](auto& plan) { plan.options.seed = 1; }},
      {"--lr", [](auto& plan) { plan.options.learning_rate = 0.1; }},
      {"--min-lr", [](auto& plan) { plan.options.min_learning_rate = 0.01; }},
      {"--warmup", [](auto& plan) { plan.options.warmup = 3; }},
      {"--clip", [](auto& plan) { plan.options.clip = 0.5; }},
      {"--weight-decay", [](auto& plan) { plan.options.weight_decay = 0; }},
      {"--optimizer",
       [](auto& plan) { plan.options.optimizer = ringside::training::OptimizerKind::sgd; }},
      {"--stop-at", [](auto& plan) { plan.stop_at = 5; }},
      {"--recompute",
       [](auto& plan) {
         plan.options.recompute = {4, 2};
       }},
      {"--eval-every", [](auto& plan) { plan.options.validate_every = 10; }},
      {"--eval-batches", [](auto& plan) { plan.options.validation_windows = 16; }},
      {"--device", [](auto& plan) { plan.device = ringside::autograd::Device::emulated; }},
      {"--device-backend", [](auto& plan) { plan.device_backend = "nccl"; }},
      {"--trace", [](auto& plan) { plan.trace = "trace.json"; }},
      {"--trace-steps", [](auto& plan) { plan.trace_steps.emplace(3, 5); }},
      {"--report", [](auto& plan) { plan.report = "report.html"; }},
      {"--dump", [](auto& plan) { plan.dump = "dump"; }},
      {"--dump-every", [](auto& plan) { plan.dump_every = 0; }},
      {"--save", [](auto& plan) { plan.save = "model"; }},
      {"--save-every", [](auto& plan) { plan.save_every = 10; }},
      {"--sample", [](auto& plan) { plan.sample_tokens = 40; }},
      {"--sample-every", [](auto& plan) { plan.sample_every = 10; }},
      {"--temperature", [](auto& plan) { plan.sample.temperature = 0; }},
      {"--top-k", [](auto& plan) { plan.sample.top_k = 5; }},
  };
}

}  // namespace

TEST_CASE("another csv file of the same name is another schedule") {
  Plan plan = plan_on_a_mesh(), other = plan_on_a_mesh();
  plan_schedule(other.mesh, "gpipe", 4);
  plan.mesh.schedule_name = other.mesh.schedule_name = "csv:schedule.csv";
  const auto schedule_of = [](const Plan& of) {
    for (const auto& [name, value] : shared_options(of))
      if (name == "--schedule") return value;
    return std::string();
  };
  CHECK(schedule_of(plan).starts_with("csv:schedule.csv ("));
  CHECK(schedule_of(plan) != schedule_of(other));
}

TEST_CASE("each option that differs is named alone with the ranks and their values") {
  const ringside::training::Options common = shared_options(plan_on_a_mesh());
  std::vector<std::string> compared, changed;
  for (const auto& [name, value] : common) compared.push_back(name);
  for (const auto& [option, make] : changes_of_a_plan()) {
    changed.push_back(option);
    CAPTURE(option);
    Plan plan = plan_on_a_mesh();
    make(plan);
    const ringside::training::Options other = shared_options(plan);
    const auto at = std::find(compared.begin(), compared.end(), option) - compared.begin();
    for (const int ranks : {2, 3, 4}) {
      std::vector<int> others(static_cast<std::size_t>(ranks - 1));
      std::iota(others.begin(), others.end(), 0);
      const std::string expected = fmt::format(
          "the ranks have different options: {} is {} on {}, {} on rank {}. Start every rank with "
          "the same options",
          option, common[at].second, ringside::ranks_in_words(others), other[at].second, ranks - 1);
      std::vector<std::string> said(static_cast<std::size_t>(ranks));
      ringside::collectives::run_threads(ranks, [&](auto& group) {
        const bool last = group.rank() == ranks - 1;
        try {
          ringside::training::require_same_options(last ? other : common, group);
        } catch (const ringside::Error& error) {
          said[static_cast<std::size_t>(group.rank())] = error.what();
        }
      });
      for (const std::string& text : said) CHECK(text == expected);
    }
  }
  std::ranges::sort(changed);
  std::ranges::sort(compared);
  CHECK(changed == compared);  // every option has a change here
}

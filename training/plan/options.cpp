#include "training/plan/options.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text/printable.hpp"
#include "base/text/read_number.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "transformer/recompute_groups.hpp"

namespace ringside::training {
namespace {

using autograd::Device;
using autograd::DType;
using context_parallel::Exchange;
using context_parallel::TokenOrder;
using std::filesystem::path;
using transformer::RecomputeGroups;
using enum Ranks;

template <class T, class Other>
constexpr bool is = std::is_same_v<T, Other>;

// Absolute, one in a line; empty if a line cannot hold one of them.
std::string text_of_paths(const std::vector<path>& paths) {
  std::vector<std::string> lines;
  for (const path& each : paths) {
    lines.push_back(std::filesystem::absolute(each).lexically_normal().string());
    if (printable_line(lines.back()) != lines.back()) return "";
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// The text of a field. Empty: no value.
template <class T>
std::string as_text(const T& field) {
  if constexpr (is<T, bool>)
    return field ? "given" : "";
  else if constexpr (is<T, path>)
    return field.string();
  else if constexpr (is<T, std::vector<path>>)
    return text_of_paths(field);
  else if constexpr (is<T, parallel::MeshShape>)
    return field.axes().empty() ? "" : field.text();
  else if constexpr (is<T, RecomputeGroups>)
    return transformer::text_of(field);
  else if constexpr (is<T, std::optional<StepRange>>)
    return field ? fmt::format("{}-{}", field->first, field->second) : "";
  else if constexpr (std::is_enum_v<T>)
    return std::string(name_of(field));
  else
    return fmt::format("{}", field);
}

// Sets a field, or adds to a list. False if it is not a number where there should be one.
template <class T>
bool set(T& field, const std::string& text) {
  if constexpr (is<T, bool>)
    field = !text.empty();
  else if constexpr (std::is_arithmetic_v<T>)
    return read_number(text, field);
  else if constexpr (is<T, std::vector<path>>)
    field.emplace_back(text);
  else if constexpr (is<T, RecomputeGroups>)
    field = transformer::recompute_groups_from(text);
  else if constexpr (is<T, std::optional<StepRange>>)
    field = step_range_from(text);
  else
    field = T(text);
  return true;
}

// The rows of one group of options: a call adds a row.
class Rows {
 public:
  Rows(std::vector<Option>& all, const char* group) : all_(all), group_(group) {}

  template <class T>
  Option& operator()(const char* name, T& field, Ranks ranks, std::string_view kept,
                     std::string help, Check check = {}) {
    Option& row = all_.emplace_back(Option{name, ranks, kept, std::move(help), check, group_});
    row.get = row.compared = [&field] { return as_text(field); };
    if constexpr (is<T, path>)
      row.compared = [&field] { return std::string(field.empty() ? "" : "given"); };
    if constexpr (!std::is_enum_v<T>)
      row.set = [&field](const std::string& text) { return training::set(field, text); };
    row.kind = is<T, bool> ? Option::flag : is<T, std::vector<path>> ? Option::list : Option::value;
    return row;
  }

  // An option whose values have names.
  template <class T>
  void one_of(const char* name, T& field, const std::vector<T>& values, Ranks ranks,
              std::string_view kept, std::string help) {
    Option& row = (*this)(name, field, ranks, kept, std::move(help));
    for (const T& value : values) row.names.push_back(as_text(value));
    row.set = [&field, values](const std::string& text) {
      for (const T& value : values)
        if (as_text(value) == text) field = value;
      return true;
    };
  }

 private:
  std::vector<Option>& all_;
  const char* group_;
};

void add_rank_options(Plan& plan, Rows row) {
  MeshPlan& mesh = plan.mesh;
  row("--parallel NAME", plan.strategy, same, not_kept,
      fmt::format(
          "The parallel strategy: {}; with fewer bytes bf16_wire, powersgd:RANK, local_sgd:STEPS, "
          "diloco:STEPS; or NAME.so, your own [one rank single, fsdp zero3, else flat]",
          fmt::join(strategy_names(), ", ")),
      {Check::strategy});
  row("--mesh AXES", mesh.shape, same, not_kept,
      "Ranks in a grid, such as pp=2,dp=2,tp=2: tp ranks divide every matrix (tensor parallel), pp "
      "ranks the layers (pipeline parallel), cp ranks the tokens of each sequence (context "
      "parallel), ep ranks the batch and the experts (expert parallel), dp and fsdp ranks the "
      "batch. dp ranks hold copies, fsdp ranks shards (zero1, zero2 or zero3); without fsdp "
      "--parallel works along dp. The last axis varies fastest [all ranks are dp]");
  row("--sequence-parallel", mesh.sequence_parallel, same, not_kept,
      "The tp ranks of --mesh also divide the tokens of each sequence between matrices: less "
      "memory, the same bytes on the wire");
  row("--tensor-parallel FILE.so", mesh.tensor_library, same, not_kept,
      "Your own functions f and row_linear for the tp ranks of --mesh [Ringside's]");
  row.one_of("--context NAME", mesh.context.exchange,
             {Exchange::all_gather, Exchange::ring, Exchange::ulysses}, same, not_kept,
             "How cp ranks attend to each other's tokens: all_gather of keys and values, ring of "
             "exchanges while they compute, or ulysses, all-to-all from tokens to heads [ring; on "
             "a GPU all_gather]");
  row.one_of("--token-order NAME", mesh.context.order, {TokenOrder::contiguous, TokenOrder::zigzag},
             same, not_kept,
             "Which tokens a cp rank has: contiguous, or zigzag, an early and a late piece, so "
             "that all do the same work; `ringside step context` shows it [zigzag]");
  row("--schedule NAME", mesh.schedule_name, same, not_kept,
      fmt::format("The order of micro-batches in the pipeline of --mesh: {}, csv:FILE or FILE.so; "
                  "`ringside step pipeline` draws them [1f1b]",
                  pipeline_parallel::schedule_names()))
      .compared = [&mesh] {
    // A file of the same name may differ between hosts.
    const std::string& name = mesh.schedule_name;
    if (!name.starts_with("csv:") && !name.ends_with(".so")) return name;
    const auto content = hash_of_text(pipeline_parallel::csv_of(mesh.schedule)) >> 32;
    return fmt::format("{} ({:08x})", name, content);
  };
  row("--stages-per-rank N", mesh.stages_per_rank, same, not_kept,
      "Pipeline stages on each pp rank, with --schedule interleaved, looped_bfs or interleaved_zb "
      "[2]",
      {Check::at_least_one, "stage"});
  row("--bucket-mb MB", plan.bucket_mb, same, not_kept,
      "Bucket size of bucketed, zero1_broadcast, zero1 and zero2, in 10^6 bytes [25]",
      {Check::positive});
  row("--threads N", plan.threads, own, not_kept, "Threads of each rank [cores divided by ranks]",
      {Check::at_least_one, "thread"});
  row.one_of("--device NAME", plan.device, {Device::cpu, Device::cuda, Device::emulated}, same,
             not_kept,
             "Device to compute on: cpu, cuda (a GPU), or emulated (the GPU's kernels on the CPU: "
             "slow, for a debugger and for tests)");
  row.one_of("--device-backend NAME", plan.device_backend, {"cuda_ipc", "nccl"}, same, not_kept,
             "Backend between GPUs: cuda_ipc (one host) or nccl [cuda_ipc]");
  row("--memory-limit GB", plan.memory_limit_gb, own, not_kept,
      "Refuse to start if this machine needs more memory, in 10^9 bytes; 0: do not check [the "
      "available memory]",
      {Check::not_negative});
}

void add_model_options(Plan& plan, Rows row) {
  transformer::Config& config = plan.config;
  row("--model NAME", plan.model, own, in_config,
      fmt::format("A named size: {} [tiny]", fmt::join(transformer::config_names(), ", ")));
  row("--d-model N", config.d_model, same, in_config,
      "Width of the model. It overrides the named size, as do the sizes below");
  row("--layers N", config.layers, same, in_config, "Number of blocks");
  row("--heads N", config.heads, same, in_config, "Query heads");
  row("--kv-heads N", config.kv_heads, same, in_config,
      "Key and value heads [as many as query heads]");
  row("--d-ff N", config.d_ff, same, in_config,
      "Width of the feed-forward layers, or of each expert");
  row("--experts N", config.experts, same, in_config,
      "Experts in the place of each feed-forward layer (mixture of experts, as in Mixtral) [none; "
      "moe-tiny: 8]");
  row("--experts-per-token K", config.experts_per_token, same, in_config,
      "Experts that the router chooses for each token [2]");
  row("--balance X", config.balance, same, in_config,
      "Weight of the loss that keeps the load of the experts equal; 0: none [0.01]",
      {Check::not_negative});
  row("--vocabulary N", config.vocabulary, same, in_config,
      "Number of tokens; bytes need 256 [tiny: as many as the tokens of --data need]");
  row("--sequence N", plan.options.sequence, same, "sequence",
      "Tokens per sequence: the most that the model can attend to");
  row("--tied-head", config.tied_head, same, in_config,
      "Share the embedding's matrix with the head");
  row("--init DIR", plan.init, same, in_folder,
      "Start from the parameters in this folder: config.json and model.safetensors");
  row("--resume DIR", plan.resume, same, in_folder,
      "Continue the run that was saved in this folder, and save there. Options that are not given "
      "keep their values")
      .compared = [&plan] {
    return plan.resumed ? fmt::format("the run after step {}", plan.resumed->step) : "";
  };
  row("--accept-changes", plan.accept_changes, own, in_folder,
      "Use the checkpoint although its files were changed after it was saved");
  row.one_of("--dtype TYPE", plan.dtype, {DType::fp32, DType::fp64, DType::bf16}, same, "dtype",
             "fp32, fp64 or bf16. bf16 stores weights, activations and gradients in 16 bits; sums "
             "and the optimizer use fp32 [fp32]");
}

void add_training_options(Plan& plan, Rows row) {
  TrainerOptions& options = plan.options;
  row("--data PATH", plan.data, own, "data",
      "Text files and directories of text files, or files of tokens that `ringside tokenize` made "
      "of them, NAME.u16 or NAME.u32 [the C++ standard library headers]");
  row("--steps N", options.steps, same, "steps", "Number of steps [100]");
  row("--stop-at N", plan.stop_at, same, not_kept,
      "Stop after step N, as if interrupted: the learning rate still falls until --steps",
      {Check::at_least_one, "step"});
  row("--batch N", options.batch, same, "batch",
      "Sequences per step over all ranks [16, or the next multiple of the ranks]");
  row("--accumulate,--micro-batches K", options.accumulate, same, "accumulate",
      "Split each data rank's batch into K micro-batches: less memory, the same gradients; and "
      "what a pipeline needs to keep its stages busy [1]",
      {Check::at_least_one, "micro-batch"});
  row("--recompute NAME", options.recompute, same, not_kept,
      "What backward computes again: none; full, each block by itself (less memory, a third more "
      "time, the same bits); every=K, groups of K blocks; or nested=K1,K2, groups of K1 with "
      "groups of K2 in them [none]",
      {Check::parsed});
  row.one_of("--optimizer NAME", options.optimizer, {OptimizerKind::sgd, OptimizerKind::adamw},
             same, "optimizer", "sgd or adamw [adamw]");
  row("--lr RATE", options.learning_rate, same, "learning_rate",
      "Peak learning rate [adamw: 3e-3 for width 128, less for wider models; sgd: 0.1]");
  row("--min-lr RATE", options.min_learning_rate, same, "min_learning_rate",
      "Learning rate at the end [a tenth of --lr]");
  row("--warmup N", options.warmup, same, "warmup",
      "Steps until the peak learning rate [a tenth of --steps, at most 100]");
  row("--clip NORM", options.clip, same, "clip", "Largest norm of the gradient; 0: no limit [1]");
  row("--weight-decay X", options.weight_decay, same, "weight_decay",
      "Weight decay of matrices, except the embedding [0.1]");
  row("", options.beta1, same, "beta1", "");
  row("", options.beta2, same, "beta2", "");
  row("--seed N", options.seed, same, "seed",
      "Seed of the initial parameters, batches and sample [0]");
  row("--eval-every,--validate-every N", options.validate_every, same, not_kept,
      "Validate on held-out text every N steps; 0: only at the end [0]");
  row("--eval-batches N", plan.validation_batches, same, not_kept,
      "Batches of held-out text per validation [as many as 64 sequences fill]",
      {Check::at_least_one, "batch"})
      .compared = [&options] {
    return fmt::format("{}", static_cast<double>(options.validation_windows) /
                                 static_cast<double>(std::max<std::int64_t>(1, options.batch)));
  };
}

void add_output_options(Plan& plan, Rows row) {
  // Sharded tensors are written, and samples are generated, by all ranks together.
  row("--metrics FILE", plan.metrics, own, not_kept, "Write a JSON line for each step");
  row("--trace FILE", plan.trace, same, not_kept,
      "Write a trace of a few steps on every rank, for ui.perfetto.dev or chrome://tracing");
  row("--trace-steps A-B", plan.trace_steps, same, not_kept,
      "The steps of --trace and --report [3-5]");
  row("--report FILE", plan.report, same, not_kept,
      "Write an HTML page at the end: tracks of every rank, memory over a step, loss");
  row("--dump DIR", plan.dump, same, not_kept,
      "Write gradients and parameters after every step: DIR/step0001.safetensors and so on");
  row("--dump-every N", plan.dump_every, same, not_kept,
      "The steps of --dump: the first, every N-th and the last; 0: the first and the last [1]",
      {Check::not_negative});
  row("--save DIR", plan.save, same, in_folder,
      "Save the model at the end: config.json and model.safetensors in the format of Hugging "
      "Face's Llama, and the state for --resume");
  row("--overwrite", plan.overwrite, own, in_folder,
      "Let --save replace the model of another run that is in its folder");
  row("--save-every N", plan.save_every, same, not_kept, "Save after every N steps, too",
      {Check::at_least_one, "step"});
  row("--sample N", plan.sample_tokens, same, not_kept,
      "Generate and print N tokens at the end [0]", {Check::not_negative});
  row("--sample-every N", plan.sample_every, same, not_kept,
      "Print a sample before the first step, and after every N steps, too",
      {Check::at_least_one, "step"});
  row("--temperature T", plan.sample.temperature, same, not_kept,
      "Temperature of the sample; below 1 favours likely tokens; 0: the likeliest only [0.8]",
      {Check::not_negative});
  row("--top-k K", plan.sample.top_k, same, not_kept,
      "Sample from the K likeliest tokens; 0: from all [0]", {Check::not_negative});
}

}  // namespace

std::vector<Option> options_of(Plan& plan) {
  std::vector<Option> all;
  add_rank_options(plan, {all, "Ranks"});
  add_model_options(plan, {all, "Model"});
  add_training_options(plan, {all, "Training"});
  add_output_options(plan, {all, "Output"});
  return all;
}

const char* name_of(OptimizerKind kind) {
  return kind == OptimizerKind::sgd ? "sgd" : "adamw";
}

StepRange step_range_from(const std::string& text) {
  const std::size_t dash = text.find('-');
  std::int64_t first = 0, last = 0;
  const bool is_range = read_number(text.substr(0, dash), first) &&
                        read_number(dash == text.npos ? text : text.substr(dash + 1), last);
  require(is_range && first >= 1 && last >= first,
          "'{}' is not a range of steps: write 3-5, or 4 for one step", text);
  return {first, last};
}

}  // namespace ringside::training

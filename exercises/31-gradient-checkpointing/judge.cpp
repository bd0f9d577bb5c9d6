// Judges recomputation: gradients against a chain of blocks that keeps everything, memory by the
// ledger against parts of that chain, and the blocks that are computed.
#include <bit>
#include <limits>
#include <memory>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/grad_mode.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "exercises/31-gradient-checkpointing/interface.hpp"
#include "exercises/31-gradient-checkpointing/reference/recomputation.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;
using recomputation::through;

constexpr std::int64_t tokens = 128, width = 8;
constexpr std::int64_t input_bytes = 8 * tokens * width;

// ---- A chain of blocks, and one step through it ----

// Saves x and W x: twice its input.
struct Layer final : Module {
  Layer(std::uint64_t seed, const std::string& name)
      : linear(width, width, true, {seed, name}, DType::fp64) {
    register_module("linear", linear);
  }
  Tensor forward(const Tensor& x) const { return x + silu(linear.forward(x)); }
  Linear linear;
};

class Chain {
 public:
  Chain(std::size_t count, std::uint64_t seed) {
    for (std::size_t i = 0; i < count; ++i) {
      layers_.push_back(std::make_unique<Layer>(seed, std::to_string(i)));
      blocks_.push_back([this, layer = layers_.back().get()](const Tensor& x) {
        ++computed;
        return layer->forward(x);
      });
    }
  }

  Blocks blocks() const { return blocks_; }
  void zero_grad() const {
    for (const auto& layer : layers_) layer->zero_grad(false);
  }
  const Layer& layer(std::size_t i) const { return *layers_[i]; }

  int computed = 0;  // blocks, since the start

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Block> blocks_;
};

Tensor input_of(std::uint64_t seed) {
  return random_tensor({tokens, width}, seed, 1);
}

// Forward and backward through `count` blocks: gradients; the blocks computed; and bytes beyond the
// input, the parameters and their gradients: after forward, and at the peak.
template <class Forward>
Json step_of(std::uint64_t seed, std::size_t count, const Forward& forward) {
  Chain chain(count, seed);
  const Tensor dy = random_tensor({tokens, width}, seed, 2);
  backward(through(chain.blocks(), input_of(seed)), dy);  // makes the gradients of all parameters
  chain.zero_grad();
  chain.computed = 0;

  const Tensor x = input_of(seed).set_requires_grad(true);
  Json seen = Json::object();
  const std::int64_t before = memory_use().current;
  reset_peak_memory();
  {
    const Tensor y = forward(chain.blocks(), x);
    seen["after forward"] = memory_use().current - before;
    backward(y, dy);
  }
  seen["peak"] = memory_use().peak - before;
  seen["computed"] = chain.computed;
  seen["gradients"]["x"] = json_of(x.grad());
  for (std::size_t i = 0; i < count; ++i)
    for (const auto& [name, parameter] : chain.layer(i).named_parameters())
      seen["gradients"][fmt::format("block {}, {}", i, name)] = json_of(parameter.grad());
  return seen;
}

Json plain_step(std::uint64_t seed, std::size_t count) {
  return step_of(seed, count, [](Blocks blocks, const Tensor& x) { return through(blocks, x); });
}

std::int64_t peak_alone(std::uint64_t seed, std::size_t count) {
  return plain_step(seed, count).at("peak");
}

double inputs(std::int64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(input_bytes);
}

// What is wrong with a step through `count` blocks, or "".
std::string fault_of_step(const Json& seen, std::uint64_t seed, std::size_t count,
                          std::int64_t most_bytes, const std::string& formula,
                          std::size_t most_computed) {
  const Json expected = plain_step(seed, count);
  for (const auto& [name, gradient] : expected.at("gradients").items())
    if (const std::string fault = difference("the gradient of " + name,
                                             seen.at("gradients").value(name, Json()), gradient);
        !fault.empty())
      return fault;
  if (const std::int64_t peak = seen.at("peak"); peak > most_bytes)
    return fmt::format("at the peak {:.1f} inputs, expected at most {:.1f}: {}", inputs(peak),
                       inputs(most_bytes), formula);
  if (const std::size_t computed = seen.at("computed"); computed > most_computed)
    return fmt::format("{} blocks were computed, expected at most {}", computed, most_computed);
  return "";
}

// ---- One checkpoint ----

constexpr std::size_t checkpoints = 16;

Json collect_gradients(World& world) {
  const Checkpoint checkpoint = [](Block block, const Tensor& x) {
    return student_checkpoint(std::move(block), x);
  };
  Json seen = step_of(world.seed(), 3, [&](Blocks blocks, const Tensor& x) {
    return recomputation::in_groups(blocks, 1, x, checkpoint);
  });
  // A checkpoint in a checkpoint.
  seen["inner"] = step_of(world.seed(), 2, [&](Blocks blocks, const Tensor& x) {
    return student_checkpoint(
        [blocks](const Tensor& input) { return student_checkpoint(blocks[1], blocks[0](input)); },
        x);
  });

  Chain chain(1, world.seed());
  int hooks = 0;
  chain.layer(0).linear.weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++hooks; });
  backward(student_checkpoint(chain.blocks()[0], input_of(world.seed()).set_requires_grad(true)),
           random_tensor({tokens, width}, world.seed(), 2));
  seen["hooks"] = hooks;

  // The input requires no gradient: ordinary history of the parameters.
  chain.zero_grad(), chain.computed = 0;
  Json& plain = seen["plain input"];
  try {
    backward(student_checkpoint(chain.blocks()[0], input_of(world.seed())),
             random_tensor({tokens, width}, world.seed(), 2));
    plain["gradient"] = json_of(chain.layer(0).linear.weight.grad());
  } catch (const Error& error) {
    plain["error"] = error.what();
  }
  plain["computed"] = chain.computed;

  const NoGrad no_history;
  const Tensor y =
      student_checkpoint(chain.blocks()[0], input_of(world.seed()).set_requires_grad(true));
  seen["without history"] = y.requires_grad();
  return seen;
}

Verdict judge_gradients(const Run& run) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  const Json& seen = run.ranks[0];
  if (const std::string fault = fault_of_step(seen, run.seed, 3, any, "", 6); !fault.empty())
    return {{"3 blocks, each a checkpoint: " + fault}};
  if (seen["computed"] != 6)
    return {{fmt::format("3 blocks, each a checkpoint: {} blocks were computed, expected 6",
                         seen["computed"].get<int>())}};
  if (const std::string fault = fault_of_step(seen["inner"], run.seed, 2, any, "", 5);
      !fault.empty())
    return {{"a checkpoint in a checkpoint: " + fault}};
  if (seen["hooks"] != 1)
    return {{fmt::format("the hook of a weight ran {} times in one backward, expected 1",
                         seen["hooks"].get<int>())}};
  const Json& plain = seen["plain input"];
  if (plain.contains("error"))
    return {{"the input requires no gradient: " + plain["error"].get<std::string>()}};
  if (plain["computed"] != 1)
    return {
        {fmt::format("the input requires no gradient: the block was computed {} times, "
                     "expected 1",
                     plain["computed"].get<int>())}};
  const Json expected = plain_step(run.seed, 1).at("gradients").at("block 0, linear.weight");
  if (const std::string fault =
          difference("the gradient of the weight", plain["gradient"], expected);
      !fault.empty())
    return {{"the input requires no gradient: " + fault}};
  if (seen["without history"] == true)
    return {{"with NoGrad, the result of a checkpoint requires a gradient"}};
  return {};
}

Json collect_saved(World& world) {
  const Checkpoint checkpoint = [](Block block, const Tensor& x) {
    return student_checkpoint(std::move(block), x);
  };
  return step_of(world.seed(), checkpoints, [&](Blocks blocks, const Tensor& x) {
    return recomputation::in_groups(blocks, 1, x, checkpoint);
  });
}

Verdict judge_saved(const Run& run) {
  const Json& seen = run.ranks[0];
  // The input of the first block is the judge's; the result of the last is not an input.
  const std::int64_t after = seen.at("after forward"), most = checkpoints * input_bytes;
  if (after > most + input_bytes / 2)
    return {
        {fmt::format("{} blocks, each a checkpoint: after forward {:.1f} inputs are kept, "
                     "expected {:.1f}",
                     checkpoints, inputs(after), inputs(most))}};
  const std::string fault =
      fault_of_step(seen, run.seed, checkpoints, peak_alone(run.seed, 1) + most + input_bytes,
                    "one block alone, 16 inputs, and one to spare", 2 * checkpoints);
  if (!fault.empty())
    return {{fmt::format("{} blocks, each a checkpoint: {}", checkpoints, fault)}};
  return {};
}

// ---- Groups ----

struct Grouping {
  std::size_t blocks, k;
};
constexpr Grouping groupings[] = {{1, 1},  {6, 2},  {16, 4}, {11, 3},
                                  {32, 4}, {32, 1}, {7, 7},  {5, 8}};

const Checkpoint& of_the_library() {
  static const Checkpoint checkpoint = [](Block block, const Tensor& x) {
    return autograd::checkpoint(std::move(block), x);
  };
  return checkpoint;
}

Json collect_groups(World& world) {
  Json all = Json::array();
  for (const auto& [count, k] : groupings)
    all.push_back(step_of(world.seed(), count, [k = k](Blocks blocks, const Tensor& x) {
      return student_in_groups(blocks, k, x, of_the_library());
    }));
  return all;
}

Verdict judge_groups(const Run& run) {
  std::size_t at = 0;
  for (const auto& [count, k] : groupings) {
    const std::size_t groups = (count + k - 1) / k;
    const std::int64_t most = peak_alone(run.seed, std::min(k, count)) +
                              static_cast<std::int64_t>(groups + 1) * input_bytes;
    const std::string fault = fault_of_step(
        run.ranks[0].at(at++), run.seed, count, most,
        fmt::format("{} blocks alone, {} inputs, and one to spare", std::min(k, count), groups),
        2 * count);
    if (!fault.empty()) return {{fmt::format("{} blocks, k = {}: {}", count, k, fault)}};
  }
  return {};
}

// ---- Halves of halves ----

constexpr std::size_t depths[] = {1, 2, 3, 8, 11, 16, 32};

Json collect_nested(World& world) {
  Json all = Json::array();
  for (const std::size_t count : depths)
    all.push_back(step_of(world.seed(), count, [](Blocks blocks, const Tensor& x) {
      return student_nested(blocks, x, of_the_library());
    }));
  return all;
}

Verdict judge_nested(const Run& run) {
  std::size_t at = 0;
  for (const std::size_t count : depths) {
    const auto levels = static_cast<std::size_t>(std::bit_width(count - 1));  // ceil(log2(count))
    const std::int64_t most =
        peak_alone(run.seed, 1) + static_cast<std::int64_t>(2 * levels + 1) * input_bytes;
    const std::string fault =
        fault_of_step(run.ranks[0].at(at++), run.seed, count, most,
                      fmt::format("one block alone, {} inputs, and one to spare", 2 * levels),
                      count + (count + 1) / 2 * levels);
    if (!fault.empty()) return {{fmt::format("{} blocks: {}", count, fault)}};
  }
  return {};
}

// ---- The best size of a group ----

struct Stack {
  std::int64_t blocks, input, saved;
  std::int64_t memory(std::int64_t k) const { return (blocks + k - 1) / k * input + k * saved; }
};

std::vector<Stack> stacks(std::uint64_t seed) {
  std::vector<Stack> all = {{16, 1, 2},  {1, 5, 7},    {96, 2, 34},
                            {100, 1, 1}, {32, 100, 1}, {115, 17, 61}};
  for (std::uint64_t i = 0; i < 40; ++i)
    all.push_back({static_cast<std::int64_t>(2 + random_below(150, seed, 300, i)),
                   static_cast<std::int64_t>(1 + random_below(50, seed, 301, i)),
                   static_cast<std::int64_t>(1 + random_below(200, seed, 302, i))});
  return all;
}

Json collect_best(World& world) {
  Json all = Json::array();
  for (const Stack& each : stacks(world.seed()))
    all.push_back(student_best_group(each.blocks, each.input, each.saved));
  return all;
}

Verdict judge_best(const Run& run) {
  std::size_t at = 0;
  for (const Stack& each : stacks(run.seed)) {
    const std::int64_t k = run.ranks[0].at(at++);
    const std::int64_t best = recomputation::best_group(each.blocks, each.input, each.saved);
    const std::string where = fmt::format("{} blocks, input {} bytes, saved {} bytes", each.blocks,
                                          each.input, each.saved);
    if (k < 1 || k > each.blocks)
      return {{fmt::format("{}: k = {}, expected 1 to {}", where, k, each.blocks)}};
    if (each.memory(k) > each.memory(best))
      return {{fmt::format("{}: k = {} needs {} bytes, k = {} needs {}", where, k, each.memory(k),
                           best, each.memory(best))}};
  }
  return {};
}

// ---- What a block keeps ----

struct Choice {
  std::vector<Activation> activations;
  std::int64_t budget = 0;
};

std::vector<Choice> choices(std::uint64_t seed) {
  std::vector<Choice> all = {
      {{{2, 0}, {6, 60}, {10, 5}, {10, 5}, {2, 20}, {2, 1}, {8, 80}, {8, 4}}, 18},
      {{{10, 50}, {4, 40}, {4, 40}}, 10},
      {{{6, 60}, {5, 45}, {5, 45}}, 10},
      {{{4, 1}, {3, 2}}, 0},
      {{{4, 1}, {3, 2}}, 7},
      {{{5, 9}}, 4}};
  for (std::uint64_t which = 0; which < 20; ++which) {
    Choice& choice = all.emplace_back();
    for (std::uint64_t i = 0; i < 10; ++i)
      choice.activations.push_back(
          {static_cast<std::int64_t>(1 + random_below(30, seed, 400 + which, i)),
           static_cast<std::int64_t>(random_below(100, seed, 500 + which, i))});
    choice.budget = static_cast<std::int64_t>(20 + random_below(80, seed, 600, which));
  }
  return all;
}

Json collect_kept(World& world) {
  Json all = Json::array();
  for (const Choice& choice : choices(world.seed()))
    all.push_back(student_kept(choice.activations, choice.budget));
  return all;
}

// The FLOPs of all that is not in `indices`, or a sentence about them.
std::string fault_of_choice(const Choice& choice, const std::vector<std::size_t>& indices) {
  std::vector<bool> is_kept(choice.activations.size());
  std::int64_t bytes = 0;
  for (const std::size_t index : indices) {
    if (index >= is_kept.size() || is_kept[index])
      return fmt::format("keeps activation {}, {}", index,
                         index < is_kept.size() ? "twice" : "which does not exist");
    is_kept[index] = true;
    bytes += choice.activations[index].bytes;
  }
  if (bytes > choice.budget) return fmt::format("keeps {} bytes", bytes);
  const auto flops = [&](const std::vector<bool>& keeps) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < keeps.size(); ++i)
      sum += keeps[i] ? 0 : choice.activations[i].flops;
    return sum;
  };
  std::vector<bool> best(is_kept.size());
  for (const std::size_t index : recomputation::kept(choice.activations, choice.budget))
    best[index] = true;
  if (flops(is_kept) > flops(best))
    return fmt::format("keeps {}: {} FLOPs to compute again, but {} are enough",
                       fmt::join(indices, ", "), flops(is_kept), flops(best));
  return "";
}

Verdict judge_kept(const Run& run) {
  std::size_t at = 0;
  for (const Choice& choice : choices(run.seed)) {
    const auto indices = run.ranks[0].at(at++).get<std::vector<std::size_t>>();
    std::vector<std::string> bytes, flops;
    for (const Activation& each : choice.activations) {
      bytes.push_back(std::to_string(each.bytes));
      flops.push_back(std::to_string(each.flops));
    }
    if (const std::string fault = fault_of_choice(choice, indices); !fault.empty())
      return {{fmt::format("bytes {}, FLOPs {}, budget {}: {}", fmt::join(bytes, " "),
                           fmt::join(flops, " "), choice.budget, fault)}};
  }
  return {};
}

const Judge judge("31-gradient-checkpointing", {{"gradients", collect_gradients, judge_gradients},
                                                {"saved", collect_saved, judge_saved},
                                                {"groups", collect_groups, judge_groups},
                                                {"nested", collect_nested, judge_nested},
                                                {"best", collect_best, judge_best},
                                                {"kept", collect_kept, judge_kept}});

}  // namespace
}  // namespace ringside::exercises

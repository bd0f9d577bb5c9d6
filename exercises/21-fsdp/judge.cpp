// Judges sharded parameters: a training against a single process; which units are in memory when,
// and which calls are made, beside a rank that runs the reference; and the ledger.
#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/trace.hpp"
#include "collectives/transport/transport.hpp"
#include "exercises/21-fsdp/interface.hpp"
#include "exercises/judge/block_net.hpp"
#include "exercises/judge/tensors.hpp"
#include "parallel/replicate.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

constexpr int steps = 3;

std::vector<ParameterGroup> all_parameters(const BlockNet& net) {
  return {{parallel::trained_parameters(net), 0.1, 0}};
}

std::unique_ptr<Optimizer> make_sgd(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups));
}

// The whole gradients of each step, and the parameters at the end, as rank 0 sees them.
template <BlockNet::Options options>
Json collect_training(World& world) {
  BlockNet net(options, world.seed(), world.rank());
  const auto method = student_stage3(net, world.group());
  const auto optimizer = method->make_optimizer(all_parameters(net), make_sgd);
  Json seen = Json::array();
  for (int step = 0; step < steps; ++step) {
    world.doing(fmt::format("step {}", step));
    backward(net.loss(world.seed(), step, world.rank(), 1));
    method->finish();
    Json& gradients = seen.emplace_back(Json::object());
    method->visit_gradients(
        [&](const NamedTensor& each) { gradients[each.name] = json_of(each.tensor); });
    optimizer->step();
  }
  Json& parameters = seen.emplace_back(Json::object());
  method->visit_parameters(
      [&](const NamedTensor& each) { parameters[each.name] = json_of(each.tensor); });
  return seen;
}

template <BlockNet::Options options>
Verdict judge_training(const Run& run) {
  const BlockNet net(options, run.seed, 0);
  SGD optimizer(all_parameters(net));
  const auto compare = [&](const std::string& what, const std::string& where, const Json& seen,
                           const Json& expected) -> std::string {
    for (const auto& [name, tensor] : expected.items())
      if (const std::string fault = difference(fmt::format("{}{}", what, name),
                                               seen.contains(name) ? seen[name] : Json(), tensor);
          !fault.empty())
        return fmt::format("{}: {}", where, fault);
    return "";
  };
  for (int step = 0; step <= steps; ++step) {
    Json expected = Json::object();
    if (step < steps) {
      optimizer.zero_grad();
      backward(net.loss(run.seed, step, 0, run.world));
    }
    for (const auto& [name, parameter] : net.named_parameters())
      expected[name] = json_of(step < steps ? parameter.grad() : parameter);
    const std::string fault =
        step < steps
            ? compare("the gradient of ", fmt::format("step {}", step), run.ranks[0].at(step),
                      expected)
            : compare("", fmt::format("after {} steps", steps), run.ranks[0].at(steps), expected);
    if (!fault.empty()) return {{fault}};
    if (step < steps) optimizer.step();
  }
  return {};
}

// One step: the units in memory when forward and backward reach each layer, and all calls.
template <BlockNet::Options options>
Json collect_step(World& world) {
  BlockNet net(options, world.seed(), world.rank());
  const auto method = student_stage3(net, world.group());
  Json events = Json::array(), calls = Json::array();
  std::string error;
  const auto note = [&](const std::string& what) {
    events.push_back({{"what", what}, {"in memory", method->in_memory()}});
  };
  for (const auto& [name, module] : net.named_modules()) {
    if (!net.is_layer(name)) continue;
    module->register_forward_pre_hook([&note, name = name] { note("forward of " + name); });
    module->register_forward_hook([&note, name = name](const Tensor& y) {
      if (y.grad_fn())
        y.register_hook([&note, name](const Tensor&) { note("backward of " + name); });
    });
  }
  world.doing("one step");
  reset_peak_memory();
  const std::uint64_t before = world.group().traffic().payload_bytes_sent;
  Trace trace;
  try {
    const Trace::On on(trace);
    if (options.history) {
      backward(net.loss(world.seed(), 0, world.rank(), 1));
      method->finish();
    } else {
      const NoGrad no_history;
      (void)net.loss(world.seed(), 0, world.rank(), 1);
    }
    note("end");
    world.group().barrier();
  } catch (const Error& thrown) {
    error = thrown.what();  // other calls than those of the witness explain it
  }
  for (const Trace::Span& span : trace.spans())
    if (span.kind == Trace::Kind::call && !span.about.empty())
      calls.push_back({{"call", span.name + " of " + span.about}, {"bytes", span.bytes}});
  return {{"events", events},
          {"calls", calls},
          {"error", error},
          {"sent", world.group().traffic().payload_bytes_sent - before},
          {"peak", memory_use(MemoryKind::parameters).peak}};
}

std::string error_of(const Run& run) {
  for (int rank = 0; rank < run.world; ++rank)
    if (const std::string error = run.ranks[rank].at("error"); !error.empty())
      return fmt::format("rank {}: {}", rank, error);
  return "";
}

std::string names(const Json& units) {
  return units.empty() ? "nothing"
                       : fmt::format("{}", fmt::join(units.get<std::vector<std::string>>(), ", "));
}

// Where the events of a rank first differ from those that the witness, the last rank, has.
Verdict judge_events(const Run& run) {
  const Json& expected = run.ranks.back().at("events");
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& seen = run.ranks[rank].at("events");
    for (std::size_t i = 0; i < std::min(seen.size(), expected.size()); ++i)
      if (seen[i] != expected[i])
        return {{fmt::format("rank {}, {}: in memory {}; expected{} {}", rank,
                             seen[i]["what"].get<std::string>(), names(seen[i]["in memory"]),
                             seen[i]["what"] == expected[i]["what"] ? "" : " an event before,",
                             names(expected[i]["in memory"]))}};
  }
  if (const std::string error = error_of(run); !error.empty()) return {{error}};
  return {};
}

Verdict judge_calls(const Run& run) {
  const Json& expected = run.ranks.back().at("calls");
  for (int rank = 0; rank < run.world; ++rank) {
    const Json& seen = run.ranks[rank].at("calls");
    for (std::size_t i = 0; i < std::max(seen.size(), expected.size()); ++i) {
      const auto call = [&](const Json& calls) {
        return i < calls.size() ? calls[i]["call"].get<std::string>() : "no call";
      };
      if (call(seen) != call(expected))
        return {{fmt::format("rank {}, call {}: {}; expected {}", rank, i, call(seen),
                             call(expected))}};
    }
  }
  if (const std::string error = error_of(run); !error.empty()) return {{error}};
  for (int rank = 0; rank < run.world; ++rank) {
    std::uint64_t bytes = 0;
    for (const Json& call : expected)
      bytes += call.at("bytes").get<std::uint64_t>() / static_cast<unsigned>(run.world) *
               static_cast<unsigned>(run.world - 1);
    if (run.ranks[rank].at("sent") != bytes)
      return {{fmt::format("rank {}: sent {} bytes, expected {}", rank,
                           run.ranks[rank]["sent"].get<std::uint64_t>(), bytes)}};
  }
  return {};
}

Verdict judge_memory(const Run& run) {
  if (const std::string error = error_of(run); !error.empty()) return {{error}};
  const BlockNet net(BlockNet::deep, run.seed, 0);
  const std::int64_t all = net.parameter_bytes(), units = 2 * net.largest_unit_bytes();
  const std::int64_t padding = 64 * (run.world + 2) * (BlockNet::deep.depth + 2);
  const std::int64_t most = all / run.world + units + padding;
  for (int rank = 0; rank < run.world; ++rank)
    if (const std::int64_t peak = run.ranks[rank].at("peak"); peak > most)
      return {
          {fmt::format("rank {}: at the peak parameters take {:.2f} n bytes, expected at most "
                       "{:.2f} n: the shards and two units",
                       rank, static_cast<double>(peak) / static_cast<double>(all),
                       static_cast<double>(most) / static_cast<double>(all))}};
  return {};
}

const Judge judge("21-fsdp",
                  {{"training", collect_training<BlockNet::plain>, judge_training<BlockNet::plain>},
                   {"tied", collect_training<BlockNet::tied>, judge_training<BlockNet::tied>},
                   {"events", collect_step<BlockNet::plain>, judge_events},
                   {"memory", collect_step<BlockNet::deep>, judge_memory},
                   {"calls", collect_step<BlockNet::plain>, judge_calls},
                   {"tied-calls", collect_step<BlockNet::tied>, judge_calls},
                   {"checkpointing", collect_step<BlockNet::recomputed>, judge_events},
                   {"no-history", collect_step<BlockNet::without_history>, judge_events},
                   {"weak", collect_training<BlockNet::plain>, judge_training<BlockNet::plain>}});

}  // namespace
}  // namespace ringside::exercises

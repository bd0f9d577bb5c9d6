// Judges sharded parameters: a training against a single process; which units are in memory when,
// and which calls are made, both as with the reference; and the ledger.
#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/engine/engine.hpp"
#include "autograd/optim/clip.hpp"
#include "autograd/optim/sgd.hpp"
#include "ddp/replicate.hpp"
#include "exercises/21-fsdp/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/single.hpp"
#include "exercises/judge/zero/block_net_step.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

constexpr int steps = 3;

// The step of the mixed net is small: in bf16 most weights would stay where they are.
std::vector<ParameterGroup> all_parameters(const BlockNet& net) {
  const bool is_bf16 = net.named_parameters().front().tensor.dtype() == DType::bf16;
  return {{ddp::trained_parameters(net), is_bf16 ? 1e-4 : 0.1, 0}};
}

std::unique_ptr<Optimizer> make_sgd(std::vector<ParameterGroup> groups) {
  return std::make_unique<SGD>(std::move(groups));
}

std::uint64_t bytes_gathered(World& world) {
  std::uint64_t bytes = 0;
  for (const ObservedCall& each : world.calls().calls())
    if (each.call.collective == collectives::Collective::all_gather) bytes += each.bytes();
  return bytes;
}

// The whole gradients of each step, the parameters at the end, as rank 0 sees them, and the bytes
// that all-gathers carry in the last step.
template <BlockNet::Options options>
Json collect_training(World& world) {
  BlockNet net(options, world.seed(), world.rank());
  const auto method = student_stage3(net, world.group());
  const auto optimizer = method->make_optimizer(all_parameters(net), make_sgd);
  Json seen = Json::array();
  for (int step = 0; step < steps; ++step) {
    world.doing(fmt::format("step {}", step));
    world.calls().clear();
    backward(net.loss(world.seed(), step, world.rank(), 1));
    method->finish();
    const std::uint64_t gathered = bytes_gathered(world);
    Json& gradients = seen.emplace_back(Json::object());
    method->visit_gradients(
        [&](const NamedTensor& each) { gradients[each.name] = json_of(each.tensor); });
    optimizer->step();
    if (step + 1 < steps) continue;
    Json& parameters = seen.emplace_back(Json::object());
    method->visit_parameters(
        [&](const NamedTensor& each) { parameters[each.name] = json_of(each.tensor); });
    seen.push_back({{"gathered", gathered}});
  }
  return seen;
}

template <BlockNet::Options options>
Verdict judge_training(const Run& run) {
  const BlockNet net(options, run.seed, 0);
  SGD optimizer(all_parameters(net));
  for (int step = 0; step <= steps; ++step) {
    const bool end = step == steps;
    optimizer.zero_grad();
    if (!end) backward(net.loss(run.seed, step, 0, run.world));
    const Json& seen = run.ranks[0].at(step);
    for (const auto& [name, parameter] : net.named_parameters()) {
      const std::string fault =
          difference((end ? "" : "the gradient of ") + name, seen.value(name, Json()),
                     json_of(end ? parameter : parameter.grad()));
      if (!fault.empty()) return {{fmt::format("{} {}: {}", end ? "after" : "step", step, fault)}};
    }
    if (!end) optimizer.step();
  }
  return {};
}

// The largest |a - b| of two tensors; NaN if one has it.
double largest_difference(const Json& a, const Json& b) {
  double most = 0;
  for (std::size_t i = 0; i < b.at("values").size(); ++i) {
    const double off = std::abs(number_of(a.at("values").at(i)) - number_of(b.at("values")[i]));
    if (std::isnan(off)) return off;  // std::max() would pass over it
    most = std::max(most, off);
  }
  return most;
}

// bf16 has 8 bits: gradients agree to 1/20 of their norm, and what three steps change in the
// fp32 parameters to 1/10 of the largest change. One process keeps fp32 masters of bf16 parameters.
Verdict judge_mixed(const Run& run) {
  const BlockNet net(BlockNet::mixed, run.seed, 0);
  SGD optimizer(all_parameters(net));
  std::map<std::string, Tensor> last;  // in fp32
  for (const auto& [name, parameter] : net.named_parameters()) last[name] = parameter;
  for (const auto& [name, state] : optimizer.state())
    if (name.ends_with(".master")) last[name.substr(0, name.rfind('.'))] = state;
  std::map<std::string, Json> first;
  for (const auto& [name, parameter] : last) first[name] = json_of(parameter);

  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    backward(net.loss(run.seed, step, 0, run.world));
    for (const auto& [name, parameter] : net.named_parameters()) {
      const Json seen = run.ranks[0].at(step).value(name, Json());
      if (seen.is_null()) return {{fmt::format("step {}: {} has no gradient", step, name)}};
      const double most = std::sqrt(grad_norm_squared({&parameter, 1}));
      const double off = largest_difference(seen, json_of(parameter.grad()));
      if (!(off <= most / 20))
        return {{fmt::format("step {}: the gradient of {} is off by {:.2g}; its norm is {:.2g}",
                             step, name, off, most)}};
    }
    optimizer.step();
  }
  for (const auto& [name, parameter] : last) {
    const Json expected = json_of(parameter), seen = run.ranks[0].at(steps).value(name, Json());
    if (seen.is_null()) return {{fmt::format("after {} steps {} is missing", steps, name)}};
    const double most = largest_difference(expected, first[name]);
    if (!(largest_difference(seen, expected) <= most / 10))
      return {
          {fmt::format("{} steps change {} by at most {:.2g}, expected {:.2g}: the shard is in "
                       "fp32, and only what is gathered is rounded to bf16",
                       steps, name, largest_difference(seen, first[name]), most)}};
  }
  return {};
}

// Two bytes for each element of bf16, four for the norm.
Verdict judge_mixed_bytes(const Run& run) {
  const std::uint64_t expected = run_of_reference(run, collect_training<BlockNet::mixed>)
                                     .ranks[0]
                                     .at(steps + 1)
                                     .at("gathered");
  return first_fault(run, [&](int, const Json& rank) -> std::string {
    const std::uint64_t seen = rank.at(steps + 1).at("gathered");
    return seen == expected
               ? ""
               : fmt::format(
                     "all-gathers of a step carry {} bytes, expected {}: bf16 parameters "
                     "are rounded before the call",
                     seen, expected);
  });
}

// One step: the units in memory when forward and backward reach each layer, and all calls.
template <BlockNet::Options options>
Json collect_step(World& world) {
  BlockNet net(options, world.seed(), world.rank());
  auto method = student_stage3(net, world.group());
  return step_of_block_net(world, options, net,
                           {[&] { method->finish(); }, [&] { method.reset(); }});
}

std::string names(const Json& units) {
  return units.empty() ? "nothing"
                       : fmt::format("{}", fmt::join(units.get<std::vector<std::string>>(), ", "));
}

// The events of the reference, as they are if all-gathers start `ahead` units ahead. What an event
// needs, and the units that follow in its direction, do not depend on that.
Json events_ahead(Json events, int depth, int ahead) {
  // In the order of backward, as in units_in_memory().
  std::vector<std::string> units = {"root"};
  for (int i = depth; i-- > 0;) units.push_back(fmt::format("layers.{}", i));
  units.emplace_back("embed");
  const auto place = [&](const std::string& layer) -> std::ptrdiff_t {
    const auto found = std::find(units.begin(), units.end(), layer);
    return found == units.end() ? 0 : found - units.begin();  // norm and head are in the root
  };
  const auto last = static_cast<std::ptrdiff_t>(units.size()) - 1;
  bool in_backward = false;
  for (Json& event : events) {
    const std::string what = event["what"];
    if (what == "end") continue;
    in_backward = in_backward || what.starts_with("backward");
    const std::ptrdiff_t here = place(what.substr(what.find(" of ") + 4));
    // The backward of an embedding reads nothing, so backward never gathers it.
    const std::ptrdiff_t from = in_backward ? here : std::max<std::ptrdiff_t>(0, here - ahead);
    const std::ptrdiff_t to = in_backward ? std::min(last - 1, here + ahead) : here;
    event["in memory"] = Json::array();
    for (std::ptrdiff_t u = from; u <= to; ++u)
      event["in memory"].push_back(units[static_cast<std::size_t>(u)]);
  }
  return events;
}

// Where the events of a rank first differ from those that are expected.
Verdict difference_of_events(const Run& run, const Json& expected) {
  return first_fault(run, [&](int, const Json& rank) -> std::string {
    const Json& seen = rank.at("events");
    for (std::size_t i = 0; i < std::min(seen.size(), expected.size()); ++i)
      if (seen[i] != expected[i])
        return fmt::format("{}: in memory {}; expected{} {}", seen[i]["what"].get<std::string>(),
                           names(seen[i]["in memory"]),
                           seen[i]["what"] == expected[i]["what"] ? "" : " an event before,",
                           names(expected[i]["in memory"]));
    return "";
  });
}

// All-gathers may start 0, 1 or 2 units ahead.
template <BlockNet::Options options>
Verdict judge_events(const Run& run) {
  const Json expected = run_of_reference(run, collect_step<options>).ranks[0].at("events");
  require(events_ahead(expected, options.depth, 1) == expected,
          "the reference does not gather one unit ahead");
  for (const int ahead : {0, 2})
    if (difference_of_events(run, events_ahead(expected, options.depth, ahead)).says.empty())
      return first_error(run);
  const Verdict fault = difference_of_events(run, expected);
  return fault.says.empty() ? first_error(run) : fault;
}

// After `events`, which allows other depths.
Verdict judge_prefetch(const Run& run) {
  const Json expected = run_of_reference(run, collect_step<BlockNet::plain>).ranks[0].at("events");
  for (const int ahead : {0, 2})
    if (difference_of_events(run, events_ahead(expected, BlockNet::plain.depth, ahead))
            .says.empty())
      return {{fmt::format("all-gathers start {} units ahead, expected 1: {}", ahead,
                           ahead == 0 ? "the network waits while a unit computes"
                                      : "three units are whole at a time")}};
  return difference_of_events(run, expected);
}

// Kinds and sizes of the calls; labels do not matter. All-gathers have one order, and so have
// reduce-scatters; how the two mix depends on how far ahead units are gathered.
template <BlockNet::Options options>
Verdict judge_calls(const Run& run) {
  const auto by_kind = [](Json calls) {
    std::stable_sort(calls.begin(), calls.end(),
                     [](const Json& a, const Json& b) { return a["call"] < b["call"]; });
    return calls;
  };
  const Json expected = by_kind(run_of_reference(run, collect_step<options>).ranks[0].at("calls"));
  const Verdict fault = first_fault(run, [&](int, const Json& rank) -> std::string {
    const Json seen = by_kind(rank.at("calls"));
    const auto call = [](const Json& calls, std::size_t i) {
      return i < calls.size() ? fmt::format("{} of {} bytes", calls[i]["call"].get<std::string>(),
                                            calls[i]["bytes"].get<std::uint64_t>())
                              : "no call";
    };
    const auto label = [](const Json& calls, std::size_t i) {
      const std::string name = i < calls.size() ? calls[i]["label"].get<std::string>() : "";
      return name.empty() ? "" : fmt::format(" ({})", name);
    };
    for (std::size_t i = 0; i < std::max(seen.size(), expected.size()); ++i)
      if (call(seen, i) != call(expected, i))
        return fmt::format("call {}, counted by kind: {}{}; expected {}{}", i, call(seen, i),
                           label(seen, i), call(expected, i), label(expected, i));
    return "";
  });
  if (!fault.says.empty()) return fault;
  if (Verdict error = first_error(run); !error.says.empty()) return error;
  const auto p = static_cast<std::uint64_t>(run.world);
  std::uint64_t bytes = 0;
  for (const Json& call : expected) bytes += call.at("bytes").get<std::uint64_t>() / p * (p - 1);
  return first_fault(run, [&](int, const Json& rank) -> std::string {
    const std::uint64_t sent = rank.at("sent");
    return sent == bytes ? "" : fmt::format("sent {} bytes, expected {}", sent, bytes);
  });
}

// A block that is freed between its second forward and its backward is gathered a third time.
Verdict judge_recomputed(const Run& run) {
  const Verdict events = judge_events<BlockNet::recomputed>(run);
  return events.says.empty() ? judge_calls<BlockNet::recomputed>(run) : events;
}

Verdict judge_memory(const Run& run) {
  if (Verdict error = first_error(run); !error.says.empty()) return error;
  const BlockNet net(BlockNet::deep, run.seed, 0);
  const std::int64_t all = net.parameter_bytes(), unit = net.largest_unit_bytes();
  const std::int64_t padding = 64 * (run.world + 2) * (BlockNet::deep.depth + 2);
  const std::int64_t most = all / run.world + 2 * unit + unit / 2 + padding;
  const Json* const single = single_process(run);
  const std::int64_t of_reference =
      (single ? *single : run_of_reference(run, collect_step<BlockNet::deep>).ranks[0])
          .at("peak of all");
  const auto parts = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(all);
  };
  return first_fault(run, [&](int, const Json& rank) -> std::string {
    const std::int64_t peak = rank.at("peak"), peak_of_all = rank.at("peak of all");
    if (peak > most)
      return fmt::format(
          "at the peak parameters take {:.2f} n bytes, expected at most {:.2f} n: the shards, two "
          "units, and half a unit to spare",
          parts(peak), parts(most));
    if (peak_of_all > of_reference + 2 * unit)
      return fmt::format(
          "at the peak memory of all kinds takes {:.2f} n bytes, expected at most {:.2f} n",
          parts(peak_of_all), parts(of_reference + 2 * unit));
    return "";
  });
}

const Judge judge("21-fsdp",
                  {{"training", collect_training<BlockNet::plain>, judge_training<BlockNet::plain>},
                   {"tied", collect_training<BlockNet::tied>, judge_training<BlockNet::tied>},
                   {"mixed", collect_training<BlockNet::mixed>, judge_mixed},
                   {"mixed-bytes", collect_training<BlockNet::mixed>, judge_mixed_bytes},
                   {"events", collect_step<BlockNet::plain>, judge_events<BlockNet::plain>},
                   {"prefetch", collect_step<BlockNet::plain>, judge_prefetch},
                   {"memory", collect_step<BlockNet::deep>, judge_memory},
                   {"calls", collect_step<BlockNet::plain>, judge_calls<BlockNet::plain>},
                   {"tied-calls", collect_step<BlockNet::tied>, judge_calls<BlockNet::tied>},
                   {"checkpointing", collect_step<BlockNet::recomputed>, judge_recomputed},
                   {"no-history", collect_step<BlockNet::without_history>,
                    judge_events<BlockNet::without_history>},
                   {"weak", collect_training<BlockNet::plain>, judge_training<BlockNet::plain>}});

}  // namespace
}  // namespace ringside::exercises

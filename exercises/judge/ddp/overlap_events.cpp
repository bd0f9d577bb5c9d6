#include "exercises/judge/ddp/overlap_events.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autograd/engine/engine.hpp"
#include "base/trace/trace.hpp"

namespace ringside::exercises {
namespace {

std::string fault_of_backward(const Json& step, const ExpectedCalls& expected) {
  if (const Json& waited = step.at("waited in backward"); !waited.is_null())
    return fmt::format("the hook of {} waited for its own call: backward stood still",
                       waited == "" ? "a parameter" : waited.get<std::string>());
  for (std::size_t layer = LayeredNet::depth - 1; layer-- > 0;) {
    const std::size_t had = step.at("calls").at(layer), count = expected.before[layer];
    const std::vector<std::string> labels(expected.labels.begin(),
                                          expected.labels.begin() + static_cast<int>(count));
    if (had != count)
      return fmt::format("backward enters layer {}: {} had started, expected {}{}", layer,
                         had == 0 ? "no call" : fmt::format("{} call{}", had, had == 1 ? "" : "s"),
                         count, count == 0 ? "" : fmt::format(" ({})", fmt::join(labels, ", ")));
  }
  if (const Json& stayed = step.at("stayed"); !stayed.empty())
    return fmt::format(
        "after backward {} still has its gradient while its call is under way: "
        "whatever adds to it writes into memory that the call reads",
        stayed[0].get<std::string>());
  return "";
}

std::string fault_of_finish(const Json& step, const ExpectedCalls& expected) {
  const std::size_t all = step.at("all calls"), ended = step.at("ended"),
                    calls = expected.labels.size();
  if (all != calls) return fmt::format("{} calls were made, expected {}", all, calls);
  if (ended < calls)
    return fmt::format(
        "finish() returned when {} of {} calls had ended: wait for each, or the optimizer may "
        "read gradients that are still under way",
        ended, calls);
  return "";
}

// Whether memory that a tensor lies in is read or written by a call.
bool is_sent(const void* address, const std::vector<ObservedCall>& calls) {
  const auto* at = static_cast<const std::byte*>(address);
  return std::any_of(calls.begin(), calls.end(), [&](const ObservedCall& call) {
    const auto within = [&](const void* begin) {
      const auto* from = static_cast<const std::byte*>(begin);
      return from && at >= from && at < from + call.bytes();
    };
    return within(call.input) || within(call.output);
  });
}

}  // namespace

bool has_call_of_another_thread(World& world) {
  const auto calls = world.calls().calls();
  return std::any_of(calls.begin(), calls.end(), [](const auto& each) { return !each.traced; });
}

Verdict judge_threads(const Run& run) {
  return first_fault(run, [](int, const Json& seen) -> std::string {
    return seen.at("of another thread").get<bool>()
               ? "a call was made on a thread of your own: one thread at a time may use a group, "
                 "so start calls in the hooks with all_reduce_mean_async, which return at once"
               : "";
  });
}

// For each step: the calls that had been made when backward entered each layer, whether backward
// waited for one, the gradients that stayed in their parameters, and the calls that had ended when
// finish() returned. No call reaches the network before backward has ended, and then each takes
// its time: so nothing depends on how fast the network is.
Json events_of_steps(World& world, const Method& student) {
  LayeredNet net(world.seed());
  const auto method = student(net, world.group());
  CallObserver& observer = world.calls();
  std::vector<Clock::time_point> entered(LayeredNet::depth);
  for (std::size_t i = 0; i < entered.size(); ++i)
    net.layers[i]->register_forward_hook([&entered, i](const autograd::Tensor& y) {
      y.register_hook([&entered, i](const autograd::Tensor&) { entered[i] = Clock::now(); });
    });
  Json seen = {{"steps", Json::array()}, {"memory", Json::array()}};
  bool other_thread = false;
  for (int step = 0; step < 3; ++step) {
    net.zero_grad();
    Trace trace;
    const Trace::On on(trace);
    world.doing(fmt::format("backward of step {}", step));
    observer.clear();
    observer.hold();
    autograd::backward(net.loss());
    std::vector<std::pair<std::string, const void*>> addresses;
    for (const auto& [name, parameter] : net.named_parameters())
      if (parameter.grad().defined()) addresses.emplace_back(name, parameter.grad().address());
    observer.slow_down(std::chrono::milliseconds(20));
    observer.release();
    world.doing(fmt::format("finish() of step {}", step));
    method->finish();
    const std::size_t ended = observer.ended();
    observer.slow_down({});
    world.group().barrier();  // the calls that finish() did not wait for
    const std::vector<ObservedCall> all = observer.calls();
    Json stayed = Json::array();
    for (const auto& [name, address] : addresses)
      if (is_sent(address, all)) stayed.push_back(name);
    std::vector<int> calls(LayeredNet::depth);
    for (const Trace::Span& span : trace.spans())
      for (std::size_t i = 0; i < entered.size(); ++i)
        calls[i] += span.kind == Trace::Kind::call && span.queued <= entered[i];
    other_thread |= has_call_of_another_thread(world);
    seen["memory"].push_back(autograd::memory_use().current);
    seen["steps"].push_back(
        {{"calls", calls},
         {"waited in backward", observer.impatient() ? Json(*observer.impatient()) : Json()},
         {"stayed", stayed},
         {"all calls", all.size()},
         {"ended", ended}});
  }
  seen["of another thread"] = other_thread;
  return seen;
}

Verdict judge_events(const Run& run, const ExpectedCalls& expected) {
  if (Verdict threads = judge_threads(run); !threads.says.empty()) return threads;
  for (const auto& fault_of : {fault_of_backward, fault_of_finish})
    for (int rank = 0; rank < run.world; ++rank)
      for (std::size_t step = 0; step < 3; ++step)
        if (const std::string fault = fault_of(run.ranks[rank].at("steps").at(step), expected);
            !fault.empty())
          return {{fmt::format("rank {}, step {}{} {}", rank, step,
                               fault.starts_with("backward") ? "," : ":", fault)}};
  return first_fault(run, [](int, const Json& seen) -> std::string {
    const std::int64_t before = seen.at("memory").at(1), after = seen.at("memory").at(2);
    return after <= before ? ""
                           : fmt::format(
                                 "{} bytes are in memory after step 1, {} after step 2: "
                                 "gradients or handles of earlier steps are kept",
                                 before, after);
  });
}

Json ending_of_second_backward(World& world, const Method& student) {
  const LayeredNet net(world.seed());
  const auto method = student(net, world.group());
  world.doing("a second backward without finish()");
  std::string ending = "returned";
  autograd::backward(net.loss());
  try {
    autograd::backward(net.loss());
  } catch (const Error&) {
    ending = "threw";
  }
  method->finish();
  return ending;
}

Verdict judge_second_backward(const Run& run) {
  return first_fault(run, [](int, const Json& ending) -> std::string {
    return ending == "threw" ? ""
                             : "a second backward without finish() returned, expected an Error: "
                               "the calls of the first one are under way";
  });
}

Json ending_of_failed_step(World& world, const Method& student) {
  const LayeredNet net(world.seed());
  world.doing("a step in which rank 0 leaves out its backward");
  try {
    // A rank may still receive parameters here when the calls of the others fail and end the group.
    const auto method = student(net, world.group());
    if (world.rank() > 0) autograd::backward(net.loss());
    method->finish();
  } catch (const Error&) {
    return "threw";
  }
  try {
    world.group().barrier();  // rank 0 makes this call where the others make that of a gradient
  } catch (const Error&) {
  }
  return "returned";
}

Verdict judge_failed_step(const Run& run) {
  for (int rank = 1; rank < run.world; ++rank)  // rank 0 may have no call that fails
    if (run.ranks[rank] != "threw")
      return {
          {fmt::format("rank {}: finish() returned, although its calls had failed: wait() throws "
                       "what went wrong, the destructor of a ScopedWork does not",
                       rank)}};
  return {};
}

Run part_of(const Run& run, const std::string& member) {
  Run part = run;
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
    part.ranks[rank] = run.ranks[rank].at(member);
  return part;
}

}  // namespace ringside::exercises

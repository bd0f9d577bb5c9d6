#include "exercises/judge/ddp/overlap_events.hpp"

#include <fmt/format.h>

#include "autograd/engine/engine.hpp"
#include "base/trace.hpp"

namespace ringside::exercises {
namespace {

std::string fault_of_backward(const Json& step, const ExpectedCalls& expected) {
  if (const Json& waited = step.at("waited in backward"); !waited.empty())
    return fmt::format("the hook of {} waited for its own call: backward stood still",
                       waited[0].get<std::string>());
  for (std::size_t layer = LayeredNet::depth - 1; layer-- > 0;) {
    const std::size_t had = step.at("calls").at(layer).size(), count = expected.before[layer];
    const std::vector<std::string> labels(expected.labels.begin(),
                                          expected.labels.begin() + static_cast<int>(count));
    if (had != count)
      return fmt::format("backward enters layer {}: {} calls had set out, expected {}{}", layer,
                         had, count,
                         count == 0 ? "" : fmt::format(" ({})", fmt::join(labels, ", ")));
  }
  if (const Json& stayed = step.at("stayed"); !stayed.empty())
    return fmt::format(
        "after backward {} still has its gradient while its call is under way: "
        "whatever adds to it writes into memory that the call reads",
        stayed[0].get<std::string>());
  return "";
}

std::string fault_of_finish(const Json& step, const ExpectedCalls& expected) {
  const std::size_t waits = step.at("waits"), calls = expected.labels.size();
  if (waits < calls)
    return fmt::format(
        "finish() returned after it had waited for {} of {} calls: wait for each, or the "
        "optimizer may read gradients that are still under way",
        waits, calls);
  if (waits > calls)
    return fmt::format("finish() waited {} times for {} calls: handles of earlier steps are kept",
                       waits, calls);
  return "";
}

}  // namespace

// For each step: the calls that had been made when backward entered each layer, the waits before
// backward ended, the gradients that stayed in their parameters, and the waits in finish().
Json events_of_steps(World& world, const Method& student) {
  LayeredNet net(world.seed());
  const auto method = student(net, world.group());
  std::vector<Clock::time_point> entered(LayeredNet::depth);
  for (std::size_t i = 0; i < entered.size(); ++i)
    net.layers[i]->register_forward_hook([&entered, i](const autograd::Tensor& y) {
      y.register_hook([&entered, i](const autograd::Tensor&) { entered[i] = Clock::now(); });
    });
  Json seen = Json::array();
  for (int step = 0; step < 3; ++step) {
    net.zero_grad();
    Trace trace;
    const Trace::On on(trace);
    world.doing(fmt::format("backward of step {}", step));
    autograd::backward(net.loss());
    const auto backward_ended = Clock::now();
    Json stayed = Json::array();
    for (const auto& [name, parameter] : net.named_parameters())
      if (parameter.grad().defined()) stayed.push_back(name);
    world.doing(fmt::format("finish() of step {}", step));
    method->finish();
    const auto finished = Clock::now();
    world.group().barrier();  // the calls that finish() did not wait for
    Json calls(LayeredNet::depth, Json::array()), early = Json::array();
    int waits = 0;
    for (const Trace::Span& span : trace.spans()) {
      if (span.about.empty()) continue;  // the barrier
      if (span.kind == Trace::Kind::call)
        for (std::size_t i = 0; i < entered.size(); ++i)
          if (span.queued <= entered[i]) calls[i].push_back(span.about);
      if (span.kind != Trace::Kind::wait) continue;
      if (span.start < backward_ended) early.push_back(span.about);
      if (span.start >= backward_ended && span.end <= finished) ++waits;
    }
    seen.push_back(
        {{"calls", calls}, {"waited in backward", early}, {"stayed", stayed}, {"waits", waits}});
  }
  return seen;
}

Verdict judge_events(const Run& run, const ExpectedCalls& expected) {
  for (const auto& fault_of : {fault_of_backward, fault_of_finish})
    for (int rank = 0; rank < run.world; ++rank)
      for (std::size_t step = 0; step < 3; ++step)
        if (const std::string fault = fault_of(run.ranks[rank].at(step), expected); !fault.empty())
          return {{fmt::format("rank {}, step {}{} {}", rank, step,
                               fault.starts_with("backward") ? "," : ":", fault)}};
  return {};
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
  const auto method = student(net, world.group());
  world.doing("a step in which rank 0 leaves out its backward");
  try {
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

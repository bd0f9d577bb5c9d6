// Judges data parallelism that overlaps: by its gradients, and by the order of events, which the
// trace of ProcessGroup tells without the student's help.
#include "autograd/engine/engine.hpp"
#include "base/trace.hpp"
#include "exercises/15-ddp-overlap/interface.hpp"
#include "exercises/judge/data_parallel.hpp"

namespace ringside::exercises {
namespace {

Json collect_gradients(World& world) {
  return train_all_kinds(world, student_overlap);
}

Verdict judge_gradients(const Run& run) {
  return judge_training(run);
}

// What finish() does where rank 0 leaves out its backward, so that the calls of the others fail.
std::string ending_of_failed_step(World& world, LayeredNet& net, DataParallel& method) {
  net.zero_grad();
  world.doing("a step in which rank 0 leaves out its backward");
  try {
    if (world.rank() > 0) autograd::backward(net.loss());
    method.finish();
  } catch (const Error&) {
    return "threw";
  }
  try {
    world.group().barrier();  // rank 0 makes this call where the others make that of a gradient
  } catch (const Error&) {
  }
  return "returned";
}

// For each of 3 steps: the calls that had been made when backward entered each layer, the waits
// before backward ended, the gradients that stayed in their parameters, and the waits in finish().
// Then the ending of a step that fails.
Json collect_order(World& world) {
  LayeredNet net(world.seed());
  const auto method = student_overlap(net, world.group());
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
  return {{"steps", seen}, {"failed step", ending_of_failed_step(world, net, *method)}};
}

// "2.weight, 2.bias": the parameters above `layer`, whose gradients are complete first.
std::string names_above(int layer) {
  std::vector<std::string> names;
  for (int above = LayeredNet::depth - 1; above > layer; --above)
    for (const char* part : {"weight", "bias"}) names.push_back(fmt::format("{}.{}", above, part));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string fault_of_backward(const Json& step) {
  if (const Json& waited = step.at("waited in backward"); !waited.empty())
    return fmt::format("the hook of {} waited for its own call: backward stood still",
                       waited[0].get<std::string>());
  for (int layer = LayeredNet::depth - 2; layer >= 0; --layer) {
    const std::size_t had = step.at("calls").at(static_cast<std::size_t>(layer)).size();
    const int expected = 2 * (LayeredNet::depth - 1 - layer);
    if (static_cast<int>(had) != expected)
      return fmt::format("backward enters layer {}: {} calls had set out, expected {} ({})", layer,
                         had, expected, names_above(layer));
  }
  if (const Json& stayed = step.at("stayed"); !stayed.empty())
    return fmt::format(
        "after backward {} still has its gradient while its call is under way: "
        "whatever adds to it writes into memory that the call reads",
        stayed[0].get<std::string>());
  return "";
}

std::string fault_of_finish(const Json& step) {
  const int waits = step.at("waits"), calls = 2 * LayeredNet::depth;
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

Verdict judge_order(const Run& run) {
  std::vector<std::string> says;
  for (const auto& fault_of : {fault_of_backward, fault_of_finish})
    for (int rank = 0; rank < run.world && says.empty(); ++rank)
      for (std::size_t step = 0; step < 3 && says.empty(); ++step)
        if (const std::string fault = fault_of(run.ranks[rank].at("steps").at(step));
            !fault.empty())
          says = {fmt::format("rank {}, step {}{} {}", rank, step,
                              fault.starts_with("backward") ? "," : ":", fault)};
  for (int rank = 1; rank < run.world; ++rank)  // rank 0 has no call that could fail
    if (run.ranks[rank].at("failed step") != "threw")
      says.push_back(
          fmt::format("rank {}: finish() returned, although its calls had failed: wait() throws "
                      "what went wrong, the destructor of a ScopedWork does not",
                      rank));
  return {says};
}

Json collect_calls(World& world) {
  return calls_of_all_kinds(world, student_overlap);
}

Verdict judge_calls(const Run& run) {
  return judge_calls_like_witness(run);
}

// Three micro-batches, the first two under no_sync().
Json collect_no_sync(World& world) {
  return train_all_kinds(world, student_overlap, 3);
}

Verdict judge_no_sync(const Run& run) {
  return judge_training(run, 3);
}

const Judge judge("15-ddp-overlap", {{"gradients", collect_gradients, judge_gradients},
                                     {"order", collect_order, judge_order},
                                     {"calls", collect_calls, judge_calls},
                                     {"no-sync", collect_no_sync, judge_no_sync},
                                     {"weak", collect_gradients, judge_last_weights}});

}  // namespace
}  // namespace ringside::exercises

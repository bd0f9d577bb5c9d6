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

// For each of 3 steps: the calls that had been made when backward entered each layer, the waits
// before backward ended, and the waits in finish().
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
    seen.push_back({{"calls", calls}, {"waited in backward", early}, {"waits", waits}});
  }
  return seen;
}

Verdict judge_order(const Run& run) {
  for (int rank = 0; rank < run.world; ++rank)
    for (int step = 0; step < 3; ++step) {
      const Json& seen = run.ranks[rank].at(static_cast<std::size_t>(step));
      if (!seen.at("waited in backward").empty())
        return {
            {fmt::format("rank {}, step {}: the hook of {} waited for its own call: backward "
                         "stood still",
                         rank, step, seen["waited in backward"][0].get<std::string>())}};
      for (int layer = LayeredNet::depth - 2; layer >= 0; --layer) {
        const std::size_t had = seen.at("calls").at(static_cast<std::size_t>(layer)).size();
        const int expected = 2 * (LayeredNet::depth - 1 - layer);
        std::vector<std::string> names;
        for (int above = LayeredNet::depth - 1; above > layer; --above)
          for (const char* part : {"weight", "bias"})
            names.push_back(fmt::format("{}.{}", above, part));
        if (static_cast<int>(had) != expected)
          return {
              {fmt::format("rank {}, step {}, backward enters layer {}: {} calls had set out, "
                           "expected {} ({})",
                           rank, step, layer, had, expected, fmt::join(names, ", "))}};
      }
      const int waits = seen.at("waits"), calls = 2 * LayeredNet::depth;
      if (waits < calls)
        return {
            {fmt::format("rank {}, step {}: finish() returned after it had waited for {} of {} "
                         "calls: the optimizer would read gradients that are still under way",
                         rank, step, waits, calls)}};
      if (waits > calls)
        return {
            {fmt::format("rank {}, step {}: finish() waited {} times for {} calls: handles of "
                         "earlier steps are kept",
                         rank, step, waits, calls)}};
    }
  return {};
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

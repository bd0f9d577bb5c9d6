// Calls and bytes on the wire, exactly. p is the number of ranks, n the bytes of the parameters
// with the padding of their shards:
//
//     stages 1, 2    a reduce-scatter and an all-gather for each bucket       2 (p-1)/p n per rank
//     stage 3        two all-gathers and a reduce-scatter for each block      3 (p-1)/p n
//                    one all-gather and one reduce-scatter for embedding,
//                    norm and head                                            2 (p-1)/p n
//                    one matrix for embedding and head counts as a block      3 (p-1)/p n
//
// On a ring, each of these calls takes p-1 messages from each rank.
#include "tests/zero/llama.hpp"
#include "tests/zero/stages.hpp"

using namespace ringside;
using namespace ringside::autograd;
using namespace ringside::tests;

namespace {

GroupOptions ring() {
  GroupOptions options;
  options.algorithms = collectives::AlgorithmSelection("reduce_scatter=ring,all_gather=ring");
  return options;
}

template <class Step>
void must_send(ProcessGroup& group, std::uint64_t calls, std::uint64_t bytes, Step&& step) {
  const auto before = group.traffic();
  step();
  const auto after = group.traffic();
  const std::uint64_t messages = after.messages_sent - before.messages_sent,
                      sent = after.payload_bytes_sent - before.payload_bytes_sent;
  require(messages == calls * static_cast<std::uint64_t>(group.size() - 1),
          "{} messages instead of those of {} calls", messages, calls);
  require(sent == bytes, "{} bytes instead of {}", sent, bytes);
}

// What one rank sends in so many reduce-scatters or all-gathers of `bytes`.
std::uint64_t bytes_of_calls(std::uint64_t times, std::int64_t bytes, ProcessGroup& group) {
  return times * static_cast<std::uint64_t>(bytes / group.size() * (group.size() - 1));
}

template <class Stage>
void two_calls_for_each_bucket(std::size_t micro_batches, std::size_t reduce_scatters) {
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          ToyNet net(0, DType::fp32);
          Stage stage(net, group);
          const auto optimizer =
              stage.make_optimizer({{ddp::trained_parameters(net), 0.01, 0}}, make_sgd);
          const std::size_t buckets = stage.plan().buckets().size();
          require(buckets == 2, "{} buckets", buckets);
          const std::uint64_t bytes =
              bytes_of_calls(reduce_scatters, stage.plan().padded_bytes(), group) +
              bytes_of_calls(1, stage.plan().padded_bytes(), group);
          must_send(group, (reduce_scatters + 1) * buckets, bytes, [&] {
            for (std::size_t i = 1; i < micro_batches; ++i) {
              const auto accumulate = stage.no_sync();
              backward(loss_of_rows<float>(net, 0, 4));
            }
            backward(loss_of_rows<float>(net, 0, 4));
            stage.finish();
            optimizer->step();
          });
        },
        ring());
}

bool is_block(const ddp::Bucket& bucket) {
  return bucket.entries[0].parameter.name.starts_with("model.layers.");
}

// Two steps: forward, backward, optimizer; with or without recomputed blocks.
void sends_what_units_need(bool tied, bool recomputes) {
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          transformer::Model model(small_llama(tied));
          model.set_recompute({recomputes ? 1 : 0});
          zero::Zero3 stage(model, group);
          const auto& units = stage.plan().buckets();
          require(units.size() == (tied ? 4 : 5), "{} units", units.size());
          std::uint64_t calls = 0, bytes = 0;
          for (std::size_t b = 0; b < units.size(); ++b) {
            const std::uint64_t times = is_block(units[b]) || tied ? 3 : 2;
            calls += times,
                bytes += bytes_of_calls(times, 4 * stage.plan().padded_elements(b), group);
          }
          const auto optimizer =
              stage.make_optimizer({{ddp::trained_parameters(model), 0.01, 0}}, make_sgd);
          for (int step = 0; step < 2; ++step)
            must_send(group, calls, bytes, [&] {
              backward(loss_of(model, group.rank()));
              stage.finish();
              optimizer->step();
            });
        },
        ring());
}

}  // namespace

TEST_CASE("stage 1 sends what data parallel sends") {
  two_calls_for_each_bucket<StateInBuckets>(1, 1);
  two_calls_for_each_bucket<StateInBuckets>(3, 1);  // micro-batches are accumulated first
}

TEST_CASE(
    "stage 2 sends what data parallel sends, and one more reduce-scatter for each further "
    "micro-batch") {
  two_calls_for_each_bucket<GradientsInBuckets>(1, 1);
  two_calls_for_each_bucket<GradientsInBuckets>(3, 3);
}

TEST_CASE(
    "stage 3 sends half as much again as data parallel for the blocks, and the same for the rest") {
  sends_what_units_need(false, false);
  sends_what_units_need(true, false);
}

TEST_CASE("stage 3 sends no more if blocks are recomputed") {
  sends_what_units_need(false, true);
}

TEST_CASE("without history stage 3 gathers a unit once for each use") {
  for (const bool tied : {false, true})
    on_every_transport(
        3,
        [tied](ProcessGroup& group) {
          transformer::Model model(small_llama(tied));
          zero::Zero3 stage(model, group);
          const NoGrad no_grad;
          std::uint64_t bytes = bytes_of_calls(1, stage.plan().padded_bytes(), group);
          const auto& units = stage.plan().buckets();
          const auto root = std::find_if(units.begin(), units.end(),
                                         [](const auto& unit) { return !is_block(unit); }) -
                            units.begin();
          // The tied matrix is gathered at the beginning and at the end.
          if (tied)
            bytes += bytes_of_calls(
                1, 4 * stage.plan().padded_elements(static_cast<std::size_t>(root)), group);
          must_send(group, 3 + 2, bytes, [&] { (void)loss_of(model, 0); });
          require(stage.in_memory().empty(), "{} stayed in memory", stage.in_memory());
        },
        ring());
}

TEST_CASE("stage 3 gathers a unit once if it is both the first and the last in use") {
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          ToyNet net(0, DType::fp32);
          zero::Zero3 stage(net, group);
          must_send(group, 2, bytes_of_calls(2, stage.plan().padded_bytes(), group), [&] {
            backward(loss_of_rows<float>(net, 0, 4));
            stage.finish();
          });
        },
        ring());
}

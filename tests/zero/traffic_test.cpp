// Calls and bytes on the wire, exactly. p is the number of ranks, and n the bytes of all parameters
// with what fills up their shards:
//
//     stages 1 and 2    a reduce-scatter and an all-gather for each bucket          2 (p-1)/p n from each rank
//     stage 3           two all-gathers and a reduce-scatter for each block         3 (p-1)/p n
//                       one all-gather and a reduce-scatter for the embedding,      2 (p-1)/p n
//                       and for the norm and the head, which forward ends with
//                       if embedding and head are one matrix, they are as a block   3 (p-1)/p n
//
// Round the ring, either half is p-1 messages from each rank.
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
          "{} messages in place of {} calls", messages, calls);
  require(sent == bytes, "{} bytes in place of {}", sent, bytes);
}

std::uint64_t share_of(std::uint64_t times, std::int64_t bytes, ProcessGroup& group) {
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
          const auto optimizer = stage.make_optimizer({{trained(net), 0.01, 0}}, make_sgd);
          const std::size_t buckets = stage.plan().buckets().size();
          require(buckets == 2, "{} buckets", buckets);
          const std::uint64_t bytes =
              share_of(reduce_scatters, stage.plan().padded_bytes(), group) +
              share_of(1, stage.plan().padded_bytes(), group);
          must_send(group, (reduce_scatters + 1) * buckets, bytes, [&] {
            const auto go = [&] {
              backward(
                  mse_loss(net.forward(rows_of<float>(0, 0, 4, 10)), rows_of<float>(1, 0, 4, 5)));
            };
            for (std::size_t i = 1; i < micro_batches; ++i) {
              const auto quiet = stage.no_sync();
              go();
            }
            go();
            stage.finish();
            optimizer->step();
          });
        },
        ring());
}

bool is_block(const ddp::Bucket& bucket) {
  return bucket.entries[0].parameter.name.starts_with("model.layers.");
}

// Forward, backward, step; and the same model with blocks that are computed again.
void sends_what_units_need(bool tied, bool checkpoint_activations) {
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [&](ProcessGroup& group) {
          transformer::Model model(small_llama(tied));
          model.set_checkpoint_activations(checkpoint_activations);
          zero::ShardedParameters stage(model, group);
          const auto& units = stage.plan().buckets();
          require(units.size() == (tied ? 4 : 5), "{} units", units.size());
          std::uint64_t calls = 0, bytes = 0;
          for (std::size_t b = 0; b < units.size(); ++b) {
            const std::uint64_t times = is_block(units[b]) || tied ? 3 : 2;
            calls += times, bytes += share_of(times, 4 * stage.plan().padded_elements(b), group);
          }
          const auto optimizer = stage.make_optimizer({{trained(model), 0.01, 0}}, make_sgd);
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
  two_calls_for_each_bucket<StateInBuckets>(3, 1);  // micro-batches are added up before
}

TEST_CASE(
    "stage 2 sends what data parallel sends and a reduce-scatter more for each further "
    "micro-batch") {
  two_calls_for_each_bucket<GradientsInBuckets>(1, 1);
  two_calls_for_each_bucket<GradientsInBuckets>(3, 3);
}

TEST_CASE(
    "stage 3 sends half as much again as data parallel for the blocks and no more for the rest") {
  sends_what_units_need(false, false);
  sends_what_units_need(true, false);
}

TEST_CASE("stage 3 sends no more when blocks are computed again") {
  sends_what_units_need(false, true);
}

TEST_CASE("without history a unit is gathered once for each use") {
  for (const bool tied : {false, true})
    on_every_transport(
        3,
        [tied](ProcessGroup& group) {
          transformer::Model model(small_llama(tied));
          zero::ShardedParameters stage(model, group);
          const NoGrad no_history;
          std::uint64_t bytes = share_of(1, stage.plan().padded_bytes(), group);
          const auto& units = stage.plan().buckets();
          const auto root = std::find_if(units.begin(), units.end(),
                                         [](const auto& unit) { return !is_block(unit); }) -
                            units.begin();
          if (tied)
            bytes += share_of(1, 4 * stage.plan().padded_elements(static_cast<std::size_t>(root)),
                              group);  // at the beginning and at the end
          must_send(group, 3 + 2, bytes, [&] { (void)loss_of(model, 0); });
          require(stage.in_memory().empty(), "{} stayed in memory", stage.in_memory());
        },
        ring());
}

TEST_CASE("in stage 3 a unit that is the first and the last in use is gathered once") {
  for (const int size : {2, 3, 4})
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          ToyNet net(0, DType::fp32);
          zero::ShardedParameters stage(net, group);
          must_send(group, 2, share_of(2, stage.plan().padded_bytes(), group), [&] {
            backward(
                mse_loss(net.forward(rows_of<float>(0, 0, 4, 10)), rows_of<float>(1, 0, 4, 5)));
            stage.finish();
          });
        },
        ring());
}

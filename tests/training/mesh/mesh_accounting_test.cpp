// Bytes on the wire of each axis, and bytes in memory, exactly.
//
// p is the number of ranks of an axis, m the micro-batches of a rank, T their tokens, L the layers,
// d the width, e the bytes of a number. On a ring an all-reduce of n bytes sends 2 (p-1)/p n from
// each rank, a reduce-scatter or an all-gather half of that:
//
//     tp    each layer         two sums in forward, two in backward       m L 8 (t-1)/t T d e
//           embedding          one sum in forward                         m   2 (t-1)/t T d e
//           head               one sum in backward                        m   2 (t-1)/t T d e
//           cross-entropy      three numbers a token                      m   2 (t-1)/t T 3 e
//           divided sequences  the same, and the norms' gradients      2 (t-1)/t (2 L + 1) d e
//     dp    bucketed           this rank's gradients                          2 (p-1)/p n
//           zero1              the same, padded                               2 (p-1)/p n
//           with fsdp          a shard of the gradients                       2 (p-1)/p n / fsdp
//     fsdp  zero1, zero2       this rank's gradients, then parameters         2 (p-1)/p n
//
// Chunks of a ring differ by one element where p does not divide them, so the ranks of an axis are
// added up: then the formulas hold to the byte.
#include "collectives/execution/traffic.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "tests/training/mesh/mesh_run.hpp"
#include "zero/shard_layout.hpp"

using namespace ringside;
using namespace ringside::testing;
using parallel::Axis;

namespace {

collectives::GroupOptions ring() {
  collectives::GroupOptions options;
  options.algorithms =
      collectives::AlgorithmSelection("all_reduce=ring,reduce_scatter=ring,all_gather=ring");
  return options;
}

struct Measured {
  // Of one step, of all ranks of the mesh together.
  std::uint64_t tp = 0, dp = 0, fsdp = 0, model = 0;
};

// The second step: the first one may allocate.
Measured bytes_of_step(const Problem& problem, const MeshCase& mesh) {
  Measured all;
  std::mutex guard;
  on_mesh(
      mesh, problem.config(),
      [&](auto given, auto&) {
        Model model(problem.config(), problem.dtype, autograd::Device::cpu, given->part(),
                    given->model_ranks());
        const auto strategy = std::move(given);  // destroyed before the model
        Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
        trainer.step();
        const auto sent = [&] {
          auto& of = strategy->mesh();
          return Measured{of.group(Axis::tp).traffic().payload_bytes_sent,
                          of.group(Axis::dp).traffic().payload_bytes_sent,
                          of.group(Axis::fsdp).traffic().payload_bytes_sent,
                          of.model_group().traffic().payload_bytes_sent};
        };
        const Measured before = sent();
        trainer.step();
        const Measured after = sent();
        const std::lock_guard lock(guard);
        all.tp += after.tp - before.tp;
        all.dp += after.dp - before.dp;
        all.fsdp += after.fsdp - before.fsdp;
        all.model += after.model - before.model;
      },
      ring());
  return all;
}

// What a mesh sends along tp in a step, all ranks together.
std::uint64_t tensor_bytes(const Problem& problem, const MeshCase& mesh) {
  const auto shape = mesh.plan().shape;
  const Config config = problem.config();
  const auto options = problem.options();
  const std::uint64_t t = static_cast<std::uint64_t>(shape.size(Axis::tp)),
                      e = autograd::size_of(problem.dtype),
                      L = static_cast<std::uint64_t>(config.layers),
                      d = static_cast<std::uint64_t>(config.d_model);
  // The tokens of all micro-batches and of all data ranks.
  const auto tokens = static_cast<std::uint64_t>(options.batch * options.sequence);
  std::uint64_t bytes = (t - 1) * tokens * e * (8 * L * d + 2 * d + 2 * d + 2 * 3);
  const auto data_ranks = static_cast<std::uint64_t>(shape.size(Axis::dp));
  if (mesh.sequence_parallel) bytes += data_ranks * 2 * (t - 1) * (2 * L + 1) * d * e;
  return bytes;
}

}  // namespace

TEST_CASE("bytes along tp are those of the formula, with and without divided sequences") {
  Problem problem;
  problem.layers = 3;
  problem.steps = 2;
  for (const std::int64_t accumulate : {1, 3}) {
    problem.accumulate = accumulate;
    for (const char* mesh : {"tp=2", "tp=3", "tp=4", "dp=2,tp=2", "dp=2,tp=3"}) {
      for (const bool sequence : {false, true}) {
        CAPTURE(accumulate);
        CAPTURE(mesh);
        CAPTURE(sequence);
        const MeshCase mesh_case{mesh, "bucketed", sequence};
        CHECK(bytes_of_step(problem, mesh_case).tp == tensor_bytes(problem, mesh_case));
      }
    }
  }
}

TEST_CASE("bytes along dp are those of this rank's part of the gradients, and one norm") {
  Problem problem;
  problem.layers = 3;
  problem.steps = 2;
  for (const std::string mesh : {"dp=2,tp=2", "dp=3,tp=2", "dp=2,tp=3", "dp=4"}) {
    for (const std::string inner : {"bucketed", "zero1"}) {
      CAPTURE(mesh);
      CAPTURE(inner);
      const auto shape = parallel::MeshShape(mesh);
      const int p = shape.size(Axis::dp), t = shape.size(Axis::tp);
      // Twice (p-1)/p of the bytes of each part; the loss is one number of 8 bytes.
      std::uint64_t expected = static_cast<std::uint64_t>(t) * 2 * (p - 1) * 8;
      for (int rank = 0; rank < t; ++rank) {
        const class Alone final : public transformer::ModelRanks {
         public:
          Alone(int rank, int size) : rank_(rank), size_(size) {}
          int rank() const override { return rank_; }
          int size() const override { return size_; }

         private:
          int rank_, size_;
        } division(rank, t);
        transformer::ModelPart part;
        part.tensor_rank = rank;
        part.tensor_ranks = t;
        const Model model(problem.config(), problem.dtype, autograd::Device::cpu, part, &division);
        const ddp::Alone alone{
            t == 1 ? std::vector<std::string>{}
                   : std::vector<std::string>{transformer::embedding_name, transformer::head_name}};
        std::int64_t bytes = 0;
        if (inner == "zero1")
          bytes = zero::ShardLayout(ddp::plan_buckets(model, 0.02, alone), 0, p).padded_bytes();
        else
          for (const auto& [name, tensor] : model.named_parameters())
            bytes += tensor.elements() * 8;
        expected += 2 * static_cast<std::uint64_t>(p - 1) * static_cast<std::uint64_t>(bytes);
      }
      const Measured sent = bytes_of_step(problem, {mesh, inner});
      CHECK(sent.dp == expected);
      // The squares of each parameter's gradient, unless they are added up over the world.
      const transformer::ParameterTable table(problem.config());
      const auto norm = static_cast<std::uint64_t>(p) * 2 * static_cast<std::uint64_t>(t - 1) * 8 *
                        table.entries().size();
      CHECK(sent.model == (inner == "zero1" ? 0 : norm));
    }
  }
}

// A step reduces whole gradients along fsdp and gathers whole parameters, and along dp it averages
// one shard. Only the loss and padding are beside that.
TEST_CASE("bytes along fsdp are those of the whole model, along dp those of a shard") {
  Problem problem;
  problem.layers = 3;
  problem.steps = 2;
  const Model model(problem.config(), problem.dtype);
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : model.named_parameters())
    bytes += static_cast<std::uint64_t>(tensor.elements()) * 8;
  for (const auto& [mesh, copies, shards] :
       std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>{
           {"dp=2,fsdp=2", 2, 2}, {"dp=2,fsdp=3", 2, 3}, {"fsdp=2,dp=3", 3, 2}, {"fsdp=4", 1, 4}})
    for (const std::string inner : {"zero1", "zero2", "zero3"}) {
      CAPTURE(mesh);
      CAPTURE(inner);
      const Measured sent = bytes_of_step(problem, {mesh, inner});
      const std::uint64_t padded = static_cast<std::uint64_t>(
          zero::ShardLayout(ddp::plan_buckets(model, bucket_mb), 0, static_cast<int>(shards))
              .padded_bytes());
      // All ranks of a shard group together: (n-1)/n for each of them; the loss; and the squares of
      // each parameter's gradient, unless they are added up over the world.
      const transformer::ParameterTable table(problem.config());
      const auto entries = table.entries().size();
      const std::uint64_t loss = copies * 2 * (shards - 1) * 8 * (1 + (copies > 1 ? entries : 0));
      if (inner == "zero3") {
        // Blocks are gathered twice and the edges once.
        CHECK(sent.fsdp > copies * (shards - 1) * 2 * bytes);
        CHECK(sent.fsdp < copies * (shards - 1) * 3 * (bytes + bytes / 20));
      } else {
        CHECK(sent.fsdp == copies * (shards - 1) * 2 * padded + loss);
      }
      CHECK(sent.dp == (copies - 1) * 2 * (bytes + shards * 8));
    }
}

TEST_CASE("parameters, gradients and state of a rank are the table's bytes") {
  Problem problem;
  problem.layers = 3;
  problem.steps = 2;
  problem.optimizer = training::OptimizerKind::adamw;
  for (const std::int64_t kv_heads : {2, 12})
    for (const std::string mesh : {"tp=2", "tp=4", "dp=2,tp=2"}) {
      problem.kv_heads = kv_heads;
      CAPTURE(mesh);
      CAPTURE(kv_heads);
      const Config config = problem.config();
      on_mesh({mesh, "bucketed"}, config, [&](auto given, auto&) {
        const auto in_use = [](autograd::MemoryKind kind) {
          return autograd::memory_use(kind).current;
        };
        Model model(config, problem.dtype, autograd::Device::cpu, given->part(),
                    given->model_ranks());
        const auto strategy = std::move(given);  // destroyed before the model
        Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
        trainer.run();
        std::int64_t elements = 0, tensors = 0;
        const transformer::ParameterTable table(config);
        for (const transformer::ParameterEntry& entry : table.entries()) {
          elements += entry.region(model.part().tensor_rank, model.part().tensor_ranks).elements();
          ++tensors;
        }
        require(in_use(autograd::MemoryKind::parameters) == elements * 8,
                "parameters: {} bytes, not {}", in_use(autograd::MemoryKind::parameters),
                elements * 8);
        require(in_use(autograd::MemoryKind::gradients) == elements * 8,
                "gradients: {} bytes, not {}", in_use(autograd::MemoryKind::gradients),
                elements * 8);
        // Two numbers for each element, and the number of updates of each tensor.
        require(in_use(autograd::MemoryKind::optimizer_state) == 2 * elements * 8 + 4 * tensors,
                "state: {} bytes", in_use(autograd::MemoryKind::optimizer_state));
      });
    }
}

// What `ringside train --mesh` checks before the run, beside the ledger: for every kind of stage
// and every stage of ZeRO.
TEST_CASE("the memory that a run checks for is what the ledger of each rank has at its peak") {
  using autograd::MemoryKind;
  for (const MeshCase& each : std::vector<MeshCase>{{"pp=2", "single", false, "gpipe", 4},
                                                    {"pp=4", "single", false, "gpipe", 6},
                                                    {"pp=4", "single", false, "1f1b", 6},
                                                    {"pp=3", "single", false, "1f1b", 2},
                                                    {"pp=2", "single", false, "interleaved", 4},
                                                    {"pp=3", "single", false, "zb_h1", 6},
                                                    {"pp=4", "single", false, "zb_h1", 8},
                                                    {"pp=2", "single", false, "zb_v", 4},
                                                    {"pp=4", "single", false, "zb_v", 8},
                                                    {"pp=2,tp=2", "single", false, "1f1b", 4},
                                                    {"pp=2,tp=2", "single", true, "1f1b", 4},
                                                    {"pp=2,dp=2", "bucketed", false, "1f1b", 4},
                                                    {"dp=4", "bucketed", false},
                                                    {"dp=4", "zero1", false},
                                                    {"dp=4", "zero2", false},
                                                    {"dp=4", "zero3", false},
                                                    {"dp=2,tp=2", "zero1", false},
                                                    {"dp=2,tp=2", "zero2", false},
                                                    {"dp=2,tp=2", "zero3", false},
                                                    {"dp=2,fsdp=2", "zero1", false},
                                                    {"dp=2,fsdp=2", "zero2", false},
                                                    {"dp=2,fsdp=2", "zero3", false},
                                                    {"fsdp=2,tp=2", "zero3", false},
                                                    {"cp=2", "bucketed", false},
                                                    {"cp=2", "zero3", false},
                                                    {"fsdp=2,cp=2", "zero2", false},
                                                    {"tp=2", "single", false},
                                                    {"tp=4", "single", true}})
    for (const bool tied : {false, true}) {
      if (!mesh_cases.takes()) continue;
      Problem problem;
      problem.dtype = DType::fp32;
      problem.tied = tied;
      problem.accumulate = each.micro_batches;
      problem.optimizer = training::OptimizerKind::adamw;
      const Config config = problem.config();
      const training::MeshPlan mesh = each.plan();
      std::vector<std::map<MemoryKind, double>> ledger(
          static_cast<std::size_t>(mesh.shape.ranks()));
      std::vector<double> peaks(ledger.size());  // of all kinds together
      on_mesh(each, config, [&](auto given, auto& world) {
        Model model(config, problem.dtype, autograd::Device::cpu, given->part(),
                    given->model_ranks());
        const auto strategy = std::move(given);  // destroyed before the model
        Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
        trainer.step();
        autograd::reset_peak_memory();
        trainer.step();
        peaks[static_cast<std::size_t>(world.rank())] =
            static_cast<double>(autograd::memory_use().peak);
        for (const MemoryKind kind : autograd::all_memory_kinds)
          ledger[static_cast<std::size_t>(world.rank())][kind] =
              static_cast<double>(autograd::memory_use(kind).peak);
      });
      for (int rank = 0; rank < mesh.shape.ranks(); ++rank) {
        CAPTURE(each.mesh);
        CAPTURE(each.inner);
        CAPTURE(each.schedule);
        CAPTURE(each.sequence_parallel);
        CAPTURE(tied);
        CAPTURE(mesh.shape.describe(rank));
        const auto need = need_of(each, config, problem.dtype, problem.options(),
                                  mesh.shape.coordinate(rank, Axis::pp));
        const auto& seen = ledger[static_cast<std::size_t>(rank)];
        // A message that arrives before its stage is free may wait beside the peak.
        const double message =
            mesh.shape.size(Axis::pp) == 1
                ? 0
                : static_cast<double>(problem.options().batch / mesh.data_ranks() /
                                      each.micro_batches * problem.sequence * config.d_model * 4);
        CAPTURE(message);
        CHECK(seen.at(MemoryKind::activations) >= 0.97 * need.activations);
        CHECK(seen.at(MemoryKind::activations) <= 1.03 * need.activations + message);
        CHECK(need.parameters == doctest::Approx(seen.at(MemoryKind::parameters)).epsilon(0.02));
        CHECK(need.optimizer ==
              doctest::Approx(seen.at(MemoryKind::optimizer_state)).epsilon(0.02));
        // The kinds have their peaks at different times: gradients are complete when most of the
        // activations have been freed. Their sum is more than the peak.
        const double peak = peaks[static_cast<std::size_t>(rank)];
        CHECK(need.peak > 0.95 * peak);
        CHECK(need.peak < 1.1 * peak);
      }
    }
}

// A stage's backward reduces the gradients of that stage only. (A bucket with parameters of two
// stages is reduced for both.)
TEST_CASE("bytes along dp do not grow with the stages of a rank under zero2") {
  Problem problem;
  problem.layers = 4;
  problem.steps = 2;
  problem.accumulate = 4;
  const auto sent = [&](const std::string& schedule) {
    return static_cast<double>(
        bytes_of_step(problem, {"pp=2,dp=2", "zero2", false, schedule, 4}).dp);
  };
  const double one = sent("1f1b");
  CHECK(sent("interleaved") == doctest::Approx(one).epsilon(0.02));
  CHECK(sent("zb_v") == doctest::Approx(one).epsilon(0.02));
}

#include "exercises/judge/ddp/data_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/random.hpp"
#include "collectives/algorithms/aligned_chunks.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/selection/cost_model.hpp"
#include "ddp/replicate.hpp"

namespace ringside::exercises {

using namespace autograd;

namespace {

constexpr int steps = 4;
constexpr std::int64_t rows_per_rank = 4;

int width(std::uint64_t seed, std::uint64_t which) {
  return 4 + static_cast<int>(random_below(6, seed, 2, which));
}

Linear layer(std::uint64_t seed, int in, int out, int rank, const char* name) {
  return Linear(width(seed, in), width(seed, out), true,
                {seed + static_cast<std::uint64_t>(rank), name}, DType::fp64);
}

Tensor rows_of(std::uint64_t seed, std::uint64_t stream, std::int64_t first, std::int64_t rows,
               std::int64_t columns) {
  std::vector<double> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = random_normal(seed, stream, static_cast<std::uint64_t>(first * columns) + i);
  return Tensor::from(values, {rows, columns});
}

Json json_of(const Tensor& tensor) {
  const auto values = tensor.values<double>();
  return std::vector<double>(values.begin(), values.end());
}

Json state_of(const Module& net) {
  Json state = Json::object();
  for (const auto& [name, parameter] : net.named_parameters())
    state["parameter " + name] = json_of(parameter);
  for (const auto& [name, buffer] : net.named_buffers()) state["buffer " + name] = json_of(buffer);
  return state;
}

Json gradients_of(const Module& net) {
  Json gradients = Json::object();
  for (const auto& [name, parameter] : net.named_parameters())
    if (parameter.grad().defined()) gradients[name] = json_of(parameter.grad());
  return gradients;
}

// One training. `first_row` and `rows` are this process's share of a micro-batch of `batch` rows.
Json train(const JudgeNet& net, DataParallel& method, collectives::ProcessGroup* group,
           std::uint64_t seed, std::int64_t first_row, std::int64_t rows, std::int64_t batch,
           const TrainingPlan& plan) {
  const int micro_batches = plan.micro_batches;
  Json history = {{"start", state_of(net)}, {"steps", Json::array()}};
  SGD optimizer({{ddp::trained_parameters(net), 0.05, 0}});
  for (int step = 0; step < steps; ++step) {
    const bool drops_gradients = !plan.zero_in_turn || step % 2 == 1;
    optimizer.zero_grad(drops_gradients);
    if (plan.zero_in_turn && drops_gradients)  // backward allocates new ones
      for (const Tensor& parameter : net.parameters()) parameter.lend_grad_memory({});
    const auto backward_of = [&](int micro) {
      backward(net.loss(seed, (step * micro_batches + micro) * batch + first_row, rows));
    };
    const auto sent = [&] { return group ? group->traffic().messages_sent : 0; };
    const std::uint64_t before = sent();
    std::uint64_t messages = 0;
    if (micro_batches > 1) {
      const auto paused = method.no_sync();
      for (int micro = 0; micro + 1 < micro_batches; ++micro) backward_of(micro);
      messages = sent() - before;
    }
    backward_of(micro_batches - 1);
    method.finish();
    Json gradients = gradients_of(net);
    optimizer.step();
    history["steps"].push_back({{"gradients", std::move(gradients)},
                                {"messages", messages},
                                {"parameters", state_of(net)}});
  }
  return history;
}

struct Alone final : DataParallel {
  void finish() override {}
  bool on = true;
  std::unique_ptr<ddp::Paused> no_sync() override {
    return std::make_unique<ddp::Paused>(on, false);
  }
};

// What rounding may change in numbers of about 1.
double tolerance_of(const TrainedNets& nets) {
  return nets.number_bytes == 8 ? 1e-9 : 1e-4;
}

bool near(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
}

// "every gradient is 3 times the single process's", if one number explains all of them.
std::string common_factor(const Json& seen, const Json& expected, double tolerance) {
  double factor = 0;
  for (const auto& [name, numbers] : expected.items())
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double a = seen.at(name).at(i), b = numbers[i];
      if (std::abs(b) < tolerance) continue;
      if (factor == 0) factor = a / b;
      if (!near(a, factor * b, tolerance)) return "";
    }
  return factor == 0 || near(factor, 1, 1e-3)
             ? ""
             : fmt::format("every gradient is {:.3g} times the single process's", factor);
}

std::string fault_of_gradients(const Json& seen, const Json& expected, double tolerance) {
  for (const auto& [name, numbers] : expected.items())
    if (!seen.contains(name)) return fmt::format("{} has no gradient", name);
  for (const auto& [name, numbers] : seen.items())
    if (!expected.contains(name))
      return fmt::format("{} has a gradient, but backward gave it none on any rank", name);
  if (const std::string factor = common_factor(seen, expected, tolerance); !factor.empty())
    return factor;
  for (const auto& [name, numbers] : expected.items())
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (!near(seen[name].at(i), numbers[i], tolerance))
        return fmt::format("the gradient of {}[{}] is {:.6g}, the single process's is {:.6g}", name,
                           i, seen[name][i].get<double>(), numbers[i].get<double>());
  return "";
}

// "buffer shift[0] on rank 1 is 1, on rank 0 it is 0"
std::string fault_of_state(const Json& seen, const Json& expected, int rank, double tolerance) {
  for (const auto& [name, numbers] : expected.items())
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (!near(seen.at(name).at(i), numbers[i], tolerance))
        return fmt::format("{}[{}] on rank {} is {:.6g}, {} {:.6g}", name, i, rank,
                           seen[name][i].get<double>(), rank == 0 ? "expected" : "on rank 0 it is",
                           numbers[i].get<double>());
  return "";
}

std::string fault_of_step(const Json& seen, const Json& expected, std::size_t step, int rank,
                          double tolerance) {
  if (seen.at("messages") != 0)
    return fmt::format("step {}, rank {}: {} messages were sent under no_sync(), expected none",
                       step, rank, seen["messages"].get<int>());
  std::string fault = fault_of_gradients(seen.at("gradients"), expected["gradients"], tolerance);
  if (!fault.empty()) return fmt::format("step {}, rank {}: {}", step, rank, fault);
  fault = fault_of_state(seen.at("parameters"), expected["parameters"], rank, tolerance);
  return fault.empty() ? "" : fmt::format("after step {} {}", step, fault);
}

}  // namespace

std::uint64_t ring_bytes(std::uint64_t bytes, int ranks, int rank, std::uint64_t number_bytes) {
  std::vector<collectives::Schedule> schedules;
  for (int r = 0; r < ranks; ++r) schedules.push_back(collectives::ring_all_reduce(ranks, r));
  const auto chunks = collectives::aligned_chunks(bytes / number_bytes, ranks, number_bytes);
  return collectives::cost_of(schedules, chunks, number_bytes, {}).sent[rank].bytes;
}

std::string name_of(NetKind kind) {
  switch (kind) {
    case NetKind::plain:
      return "plain";
    case NetKind::tied:
      return "tied";
    case NetKind::frozen:
      return "frozen";
    case NetKind::frozen_and_unused:
      return "frozen and unused";
    case NetKind::sometimes:
      return "sometimes";
  }
  fail("there is no such net");
}

JudgeNet::JudgeNet(NetKind kind, std::uint64_t seed, int rank)
    : kind_(kind),
      first_(layer(seed, 0, 1, rank, "first")),
      second_(layer(seed, 1, 1, rank, "second")),
      third_(layer(seed, 1, 1, rank, "third")),
      unused_(layer(seed, 2, 3, rank, "unused")),
      out_(layer(seed, 1, 4, rank, "out")),
      shift_(Tensor::full({width(seed, 4)}, rank, DType::fp64)) {
  if (kind == NetKind::tied) third_.weight = second_.weight;
  register_module("first", first_), register_module("second", second_);
  register_module("third", third_);
  if (kind == NetKind::frozen_and_unused) register_module("unused", unused_);
  register_module("out", out_);
  register_buffer("shift", shift_);
  if (kind != NetKind::frozen && kind != NetKind::frozen_and_unused) return;
  Linear* const layers[] = {&first_, &second_, &third_, &out_};
  layers[random_below(4, seed, 3, 0)]->bias.set_requires_grad(false);
}

Tensor JudgeNet::forward(const Tensor& x) const {
  Tensor hidden = relu(second_.forward(relu(first_.forward(x))));
  if (kind_ != NetKind::sometimes || calls_++ % 2 == 1) hidden = relu(third_.forward(hidden));
  return out_.forward(hidden) + shift_;
}

Tensor JudgeNet::loss(std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  return mse_loss(forward(rows_of(seed, 4, first, rows, first_.weight.size(1))),
                  rows_of(seed, 5, first, rows, out_.weight.size(0)));
}

LayeredNet::LayeredNet(std::uint64_t seed, DType dtype) {
  for (int i = 0; i < depth; ++i) {
    const std::string name = std::to_string(i);
    layers.push_back(std::make_unique<Linear>(8, 8, true, Init{seed, name}, dtype));
    register_module(name, *layers.back());
  }
}

Tensor LayeredNet::loss() const {
  Tensor x = Tensor::full({4, 8}, 1.0, DType::fp64);
  for (const auto& each : layers) x = silu(each->forward(x));
  return sum(x);
}

Json train_all_kinds(World& world, const Method& student, const TrainingPlan& plan) {
  Json seen = Json::object();
  for (const NetKind kind : all_net_kinds) {
    world.doing(fmt::format("training the net '{}'", name_of(kind)));
    const JudgeNet net(kind, world.seed(), world.rank());
    const auto method = student(net, world.group());
    seen[name_of(kind)] =
        train(net, *method, &world.group(), world.seed(), world.rank() * rows_per_rank,
              rows_per_rank, rows_per_rank * world.size(), plan);
  }
  return seen;
}

Verdict judge_start(const Run& run, const TrainedNets& nets) {
  for (const NetKind kind : nets.kinds) {
    const Json expected = state_of(JudgeNet(kind, run.seed, 0));
    for (int rank = 0; rank < run.world; ++rank) {
      const Json& seen = run.ranks[rank].at(name_of(kind)).at("start");
      const std::string fault = fault_of_state(seen, expected, rank, tolerance_of(nets));
      if (!fault.empty())
        return {{fmt::format("net '{}', before the first step {}", name_of(kind), fault)}};
    }
  }
  return {};
}

Verdict judge_last_weights(const Run& run) {
  for (const NetKind kind : all_net_kinds) {
    const JudgeNet net(kind, run.seed, 0);
    Alone alone;
    const std::int64_t batch = rows_per_rank * run.world;
    const Json expected = train(net, alone, nullptr, run.seed, 0, batch, batch, {});
    for (int rank = 0; rank < run.world; ++rank) {
      const Json& seen = run.ranks[rank].at(name_of(kind)).at("steps").at(steps - 1);
      const std::string fault =
          fault_of_state(seen.at("parameters"), expected["steps"][steps - 1]["parameters"], rank,
                         tolerance_of({}));
      if (!fault.empty()) return {{fault}};
    }
  }
  return {};
}

Verdict judge_training(const Run& run, const TrainingPlan& plan) {
  const TrainingPlan alone_plan = {.micro_batches = plan.micro_batches};
  if (const Verdict start = judge_start(run, plan.nets); !start.says.empty()) return start;
  for (const NetKind kind : plan.nets.kinds) {
    const JudgeNet net(kind, run.seed, 0);
    Alone alone;
    const std::int64_t batch = rows_per_rank * run.world;
    const Json expected = train(net, alone, nullptr, run.seed, 0, batch, batch, alone_plan);
    for (std::size_t step = 0; step < steps; ++step)
      for (int rank = 0; rank < run.world; ++rank) {
        const Json& seen = run.ranks[rank].at(name_of(kind)).at("steps").at(step);
        const std::string fault =
            fault_of_step(seen, expected["steps"][step], step, rank, tolerance_of(plan.nets));
        if (fault.empty()) continue;
        std::vector<std::string> says = {fmt::format("net '{}', {}", name_of(kind), fault)};
        if (kind == NetKind::sometimes && plan.micro_batches > 1)
          says.push_back(
              "this net uses `third` in every second forward: its gradient can come under "
              "no_sync() "
              "alone, and not in the last backward before finish()");
        return {says};
      }
  }
  return {};
}

Json calls_of_all_kinds(World& world, const Method& student) {
  Json seen = Json::object();
  for (const NetKind kind : all_net_kinds) {
    const JudgeNet net(kind, world.seed(), world.rank());
    const auto method = student(net, world.group());
    for (int step = 0; step < 3; ++step) {
      world.doing(fmt::format("step {} of the net '{}'", step, name_of(kind)));
      net.zero_grad();
      world.calls().clear();
      const collectives::Traffic before = world.group().traffic();
      backward(net.loss(world.seed(), world.rank() * rows_per_rank, rows_per_rank));
      method->finish();
      world.group().barrier();  // the calls that finish() did not wait for
      const collectives::Traffic after = world.group().traffic();
      Json calls = Json::array();
      for (const ObservedCall& each : world.calls().calls())
        calls.push_back(
            {{"call", collectives::name_of(each.call.collective)}, {"bytes", each.bytes()}});
      seen[name_of(kind)].push_back(
          {{"calls", calls}, {"sent", after.payload_bytes_sent - before.payload_bytes_sent}});
    }
  }
  return seen;
}

// "all_reduce of 80, 16 and 8 bytes"
static std::string listed(const std::vector<std::uint64_t>& bytes) {
  return fmt::format("{} bytes", fmt::join(bytes, ", "));
}

static std::string fault_of_calls(const Json& seen, std::vector<std::uint64_t> gradients,
                                  bool one_call, std::uint64_t number_bytes, int world, int rank) {
  const std::string each = one_call ? "one for all gradients" : "one for each gradient";
  if (one_call && !gradients.empty())
    gradients = {std::accumulate(gradients.begin(), gradients.end(), std::uint64_t{0})};
  std::vector<std::uint64_t> bytes;
  for (const Json& call : seen.at("calls")) {
    if (call.at("call") != "all_reduce")
      return fmt::format("a call of {}, expected all_reduce only, {}",
                         call.at("call").get<std::string>(), each);
    bytes.push_back(call.at("bytes"));
  }
  if (bytes.size() != gradients.size())
    return fmt::format("{} calls, expected {}, {}", bytes.size(), gradients.size(), each);
  std::sort(bytes.begin(), bytes.end()), std::sort(gradients.begin(), gradients.end());
  if (bytes != gradients)
    return fmt::format("calls of {}, expected {}: {}", listed(bytes), listed(gradients), each);
  std::uint64_t expected = 0;
  for (const std::uint64_t count : gradients)
    expected += ring_bytes(count, world, rank, number_bytes);
  const std::uint64_t sent = seen.at("sent");
  return sent == expected ? "" : fmt::format("sent {} bytes, expected {}", sent, expected);
}

Verdict judge_calls_of_all_kinds(const Run& run, bool one_call, const TrainedNets& nets) {
  for (const NetKind kind : nets.kinds) {
    const JudgeNet net(kind, run.seed, 0);
    for (std::size_t step = 0; step < 3; ++step) {
      net.zero_grad();
      backward(net.loss(run.seed, 0, rows_per_rank));
      std::vector<std::uint64_t> gradients;  // in bytes
      for (const auto& [name, parameter] : net.named_parameters())
        if (parameter.grad().defined())
          gradients.push_back(nets.number_bytes * static_cast<std::uint64_t>(parameter.elements()));
      for (int rank = 0; rank < run.world; ++rank) {
        const Json& seen = run.ranks[rank].at(name_of(kind)).at(step);
        const std::string fault =
            fault_of_calls(seen, gradients, one_call, nets.number_bytes, run.world, rank);
        if (!fault.empty())
          return {
              {fmt::format("net '{}', step {}, rank {}: {}", name_of(kind), step, rank, fault)}};
      }
    }
  }
  return {};
}

Json error_when_a_gradient_is_missing(World& world, const Method& student) {
  const LayeredNet net(world.seed());
  try {  // a slow rank may still be in its first broadcast when the others find the difference
    const auto method = student(net, world.group());
    backward(net.loss());
    if (world.rank() == 0) net.layers[1]->bias.zero_grad();
    world.doing("finish(), where rank 0 lacks the gradient of 1.bias");
    method->finish();
    world.group().barrier();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Verdict judge_missing_gradient(const Run& run) {
  for (const Json& text : run.ranks)
    if (text.get<std::string>().find("1.bias") != std::string::npos) return {};
  const std::string seen = run.ranks[0];
  return {
      {fmt::format("rank 0 lacks the gradient of 1.bias: expected an error that names 1.bias, "
                   "seen: {}",
                   seen.empty() ? "none" : seen)}};
}

}  // namespace ringside::exercises

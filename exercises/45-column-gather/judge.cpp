// Judges forward and backward of layers that are divided by rows, with an all-gather after each:
// numbers against a single process, and the bytes of each direction.
#include <optional>
#include <string>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "collectives/execution/traffic.hpp"
#include "exercises/45-column-gather/interface.hpp"
#include "exercises/judge/judge.hpp"
#include "exercises/judge/tensor_parallel/divided_tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

constexpr std::int64_t batch = 3;
constexpr double tolerance = 1e-5;  // of the largest number: all is fp32

// A net: `features` before its layers and after each, in rows of one rank.
struct Net {
  const char* name;
  std::vector<int> features;
  std::vector<bool> gelu;
  std::size_t depth() const { return gelu.size(); }
};
const std::vector<Net>& shallow() {
  static const std::vector<Net> nets = {{"one layer", {3, 2}, {false}},
                                        {"one layer with GELU", {2, 5}, {true}}};
  return nets;
}
const std::vector<Net>& deep() {
  static const std::vector<Net> nets = {{"two layers", {2, 4, 2}, {true, false}},
                                        {"three layers", {3, 1, 4, 2}, {true, false, true}}};
  return nets;
}
const std::vector<Net>& all_nets() {
  static const std::vector<Net> nets = [] {
    std::vector<Net> all = shallow();
    all.insert(all.end(), deep().begin(), deep().end());
    return all;
  }();
  return nets;
}

// With larger weights a GELU may let almost nothing through, and then the largest number of a
// gradient is as small as its rounding.
constexpr double scale_of_weights = 0.125;

// Weights, a batch and the gradient of the loss, whole.
struct Data {
  Data(const Net& net, int ranks, std::uint64_t seed, int number = 0) {
    const auto drawn = [&](std::int64_t rows, std::int64_t columns, const std::string& name) {
      return numbers({rows, columns}, seed, std::string(net.name) + " " + name, DType::fp32);
    };
    for (std::size_t i = 0; i < net.depth(); ++i)
      weights.push_back(
          scale(drawn(net.features[i + 1] * ranks, net.features[i] * ranks, fmt::format("W{}", i)),
                scale_of_weights));
    x = drawn(net.features.front() * ranks, batch, fmt::format("x{}", number));
    dy = drawn(net.features.back() * ranks, batch, fmt::format("dy{}", number));
  }
  std::vector<Tensor> weights;
  Tensor x, dy;
};

Tensor leaf(const Tensor& numbers) {
  return numbers.clone().set_requires_grad(true);
}

Tensor layer_of(const Tensor& weight, const Tensor& x, bool has_gelu) {
  const Tensor y = matmul(weight, x);
  return has_gelu ? gelu(y) : y;
}

// ---- Beside the student's code

// {"y", "dx", "dW": [layer], "sent": {"forward", "backward"}} of the last of `batches` batches;
// the gradients of the weights are those of all of them.
Json run_of_student(World& world, const Net& net, int batches, bool with_backward = true) {
  std::vector<RowsOfLayer> rows;
  const Data first(net, world.size(), world.seed());
  for (std::size_t i = 0; i < net.depth(); ++i)
    rows.push_back(
        {leaf(part(first.weights[i], 0, world.size(), world.rank())), bool(net.gelu[i])});
  const GatheredLayers layers = student_layers(rows);
  Json seen;
  const auto noted = [&](const char* pass, auto&& call) {
    world.doing(fmt::format("{}_gathered, net '{}'", pass, net.name));
    const auto before = world.group().traffic().payload_bytes_sent;
    const Tensor result = call();
    seen["sent"][pass] = world.group().traffic().payload_bytes_sent - before;
    return values(result);
  };
  for (int number = 0; number < batches; ++number) {
    const Data data(net, world.size(), world.seed(), number);
    seen["y"] = noted("forward", [&] { return layers.forward(data.x, world.group()); });
    if (with_backward)
      seen["dx"] = noted("backward", [&] { return layers.backward(data.dy, world.group()); });
  }
  for (const RowsOfLayer& each : rows) seen["dW"].push_back(values(each.weight.grad()));
  return seen;
}

Json runs_of(World& world, const std::vector<Net>& nets, int batches, bool with_backward = true) {
  Json seen = Json::array();
  for (const Net& net : nets) seen.push_back(run_of_student(world, net, batches, with_backward));
  return seen;
}

// ---- One process

struct Results {
  Tensor y, dx;
  std::vector<Tensor> dW;
};

Results single_process(const Net& net, int ranks, std::uint64_t seed, int batches) {
  Results results;
  std::vector<Tensor> weights;
  for (const Tensor& each : Data(net, ranks, seed).weights) weights.push_back(leaf(each));
  for (int number = 0; number < batches; ++number) {
    const Data data(net, ranks, seed, number);
    const Tensor x = leaf(data.x);
    results.y = x;
    for (std::size_t i = 0; i < net.depth(); ++i)
      results.y = layer_of(weights[i], results.y, net.gelu[i]);
    backward(results.y, data.dy);
    results.dx = x.grad();
  }
  for (const Tensor& each : weights) results.dW.push_back(each.grad());
  return results;
}

// What a rank finds that takes its own rows of what it knows, and asks nobody.
Results alone(const Net& net, int ranks, int rank, std::uint64_t seed) {
  const Data data(net, ranks, seed);
  Results results;
  std::vector<Tensor> weights, inputs, outputs;
  Tensor whole = data.x;
  for (std::size_t i = 0; i < net.depth(); ++i) {
    inputs.push_back(leaf(whole));
    weights.push_back(leaf(part(data.weights[i], 0, ranks, rank)));
    outputs.push_back(layer_of(weights[i], inputs[i], net.gelu[i]));
    whole = layer_of(data.weights[i], whole, net.gelu[i]);
  }
  Tensor own = part(data.dy, 0, ranks, rank);
  for (std::size_t i = net.depth(); i-- > 0;) {
    backward(outputs[i], own);
    own = part(inputs[i].grad(), 0, ranks, rank);
  }
  for (const Tensor& each : weights) results.dW.push_back(each.grad());
  results.dx = own;
  return results;
}

// ---- The judge

// The first fault in the runs of all nets, as "net 'two layers', rank 1: dW of layer 0 has ...".
using Fault = std::function<std::string(const Net& net, int rank, const Json& seen)>;
Verdict first_fault_of(const Run& run, const std::vector<Net>& nets, const Fault& fault) {
  for (std::size_t n = 0; n < nets.size(); ++n)
    for (int rank = 0; rank < run.world; ++rank)
      if (const std::string found =
              fault(nets[n], rank, run.ranks[static_cast<std::size_t>(rank)].at(n));
          !found.empty())
        return {{fmt::format("net '{}', rank {}: {}", nets[n].name, rank, found)}};
  return {};
}

Json collect_forward(World& world) {
  return runs_of(world, all_nets(), 1, false);
}

Verdict judge_forward(const Run& run) {
  return first_fault_of(run, all_nets(), [&](const Net& net, int, const Json& seen) {
    const auto expected = values(single_process(net, run.world, run.seed, 1).y);
    return fault_of("y", seen.at("y"), expected, expected, run.world, tolerance);
  });
}

// dW from the last layer to the first, where backward goes, and dx.
std::string fault_of_gradients(const Run& run, const Net& net, int rank, const Json& seen,
                               int batches, bool with_dx) {
  const Results whole = single_process(net, run.world, run.seed, batches),
                own = alone(net, run.world, rank, run.seed);
  const auto fault = [&](const std::string& what, const Json& numbers, const Tensor& expected,
                         const Tensor& by_itself) {
    return fault_of(what, numbers, values(part(expected, 0, run.world, rank)), values(by_itself),
                    run.world, tolerance);
  };
  for (std::size_t i = net.depth(); i-- > 0;)
    if (const std::string found =
            fault(fmt::format("dW of layer {}", i), seen.at("dW").at(i), whole.dW[i], own.dW[i]);
        !found.empty())
      return found;
  return with_dx ? fault("the returned gradient of x", seen.at("dx"), whole.dx, own.dx) : "";
}

Json collect_one_layer(World& world) {
  return runs_of(world, shallow(), 1);
}

Verdict judge_one_layer(const Run& run) {
  return first_fault_of(run, shallow(), [&](const Net& net, int rank, const Json& seen) {
    return fault_of_gradients(run, net, rank, seen, 1, false);
  });
}

Json collect_gradients(World& world) {
  return runs_of(world, all_nets(), 1);
}

Verdict judge_gradients(const Run& run) {
  return first_fault_of(run, all_nets(), [&](const Net& net, int rank, const Json& seen) {
    return fault_of_gradients(run, net, rank, seen, 1, true);
  });
}

constexpr int two_batches = 2;

Json collect_batches(World& world) {
  return runs_of(world, deep(), two_batches);
}

Verdict judge_batches(const Run& run) {
  return first_fault_of(run, deep(), [&](const Net& net, int rank, const Json& seen) {
    return fault_of_gradients(run, net, rank, seen, two_batches, true);
  });
}

// (n-1)/n of what a layer puts out, in forward; of what goes into it, in backward.
Verdict judge_bytes(const Run& run) {
  return first_fault_of(run, all_nets(), [&](const Net& net, int, const Json& seen) -> std::string {
    const auto others = static_cast<std::uint64_t>(run.world - 1);
    std::uint64_t rows_out = 0, rows_in = 0;  // of a rank, over all layers
    for (std::size_t i = 0; i < net.depth(); ++i) {
      rows_in += static_cast<std::uint64_t>(net.features[i]);
      rows_out += static_cast<std::uint64_t>(net.features[i + 1]);
    }
    const auto fault = [&](const char* pass, std::uint64_t rows, const char* of) -> std::string {
      const std::uint64_t sent = seen.at("sent").at(pass),
                          expected = others * rows * batch * sizeof(float);
      if (sent == expected) return "";
      return fmt::format("{} sent {} bytes, expected {}: (n-1)/n of the {} of each layer", pass,
                         sent, expected, of);
    };
    const std::string found = fault("forward", rows_out, "output");
    return found.empty() ? fault("backward", rows_in, "input") : found;
  });
}

const Judge judge("45-column-gather", {{"forward", collect_forward, judge_forward},
                                       {"one-layer", collect_one_layer, judge_one_layer},
                                       {"gradients", collect_gradients, judge_gradients},
                                       {"batches", collect_batches, judge_batches},
                                       {"bytes", collect_gradients, judge_bytes}});

}  // namespace
}  // namespace ringside::exercises

#include "training/strategies/parallel_strategy.hpp"

#include <cmath>

#include "autograd/engine/engine.hpp"
#include "autograd/optim/clip.hpp"
#include "training/phase.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

using autograd::Tensor;

namespace {

Tensor forward(const transformer::Model& model, const transformer::Batch& batch) {
  const autograd::Shape shape{batch.sequences, batch.length};
  return model.loss(Tensor::from(batch.input, shape), Tensor::from(batch.target, shape));
}

}  // namespace

std::vector<transformer::TokenRange> ParallelStrategy::tokens_of(std::int64_t length) const {
  return {{0, length}};
}

double ParallelStrategy::run_batches(const transformer::Model& model,
                                     std::span<const transformer::Batch> micro_batches) {
  const auto parts = static_cast<double>(micro_batches.size());
  std::vector<Tensor> losses;  // read at the end, so that the host does not wait for each of them
  for (const transformer::Batch& batch : micro_batches) {
    const bool last = &batch == &micro_batches.back();
    const auto quiet = last ? nullptr : no_sync();
    Tensor loss;
    in_phase("forward", [&] { loss = forward(model, batch); });
    in_phase("backward", [&] {
      autograd::backward(loss, Tensor::scalar(1.0 / parts, loss.dtype(), loss.device()));
    });
    losses.push_back(loss.detach());
  }
  double sum = 0;
  for (const Tensor& loss : losses) sum += loss.item();
  return sum / parts;
}

double ParallelStrategy::loss_of(const transformer::Model& model, const transformer::Batch& batch) {
  return forward(model, batch).item();
}

std::unique_ptr<autograd::Optimizer> ParallelStrategy::make_optimizer(
    std::vector<autograd::ParameterGroup> groups, const MakeOptimizer& make) {
  return make(std::move(groups));
}

ParallelStrategy::LocalParameters ParallelStrategy::local_parameters(
    const autograd::Optimizer& optimizer) const {
  LocalParameters local;
  for (const autograd::ParameterGroup& group : optimizer.groups())
    local.tensors.insert(local.tensors.end(), group.parameters.begin(), group.parameters.end());
  return local;
}

double ParallelStrategy::gradient_norm(const autograd::Optimizer& optimizer) {
  std::vector<Tensor> parameters;
  for (const autograd::NamedTensor& each : local_parameters(optimizer).tensors)
    parameters.push_back(each.tensor);
  return std::sqrt(autograd::grad_norm_squared(parameters));
}

void ParallelStrategy::visit_parameters(const autograd::Module& model, const SeeTensor& see) const {
  for (const autograd::NamedTensor& parameter : model.named_parameters()) see(parameter);
}

void ParallelStrategy::visit_gradients(const autograd::Module& model, const SeeTensor& see) const {
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.grad().defined()) see({name, parameter.grad()});
}

void ParallelStrategy::visit_state(const autograd::Optimizer& optimizer,
                                   const SeeTensor& see) const {
  for (const autograd::NamedTensor& each : optimizer.state()) see(each);
}

void ParallelStrategy::fill_state(autograd::Optimizer& optimizer, const SeeTensor& fill) const {
  for (const autograd::NamedTensor& each : optimizer.state()) fill(each);
}

}  // namespace ringside::training

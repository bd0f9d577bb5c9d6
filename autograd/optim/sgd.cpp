#include "autograd/optim/sgd.hpp"

#include "autograd/kernels/device_kernels.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

SGD::SGD(std::vector<ParameterGroup> groups, SgdOptions options)
    : Optimizer(std::move(groups), options.momentum == 0
                                       ? std::vector<std::string>{}
                                       : std::vector<std::string>{"momentum_buffer"}),
      options_(options) {
  require(options.momentum >= 0 && (options.momentum > 0 || !options.nesterov),
          "SGD: expected momentum >= 0, and > 0 for Nesterov's, got {}", options.momentum);
}

void SGD::update(Device device, const std::vector<Update>& updates) {
  std::vector<SgdUpdate> all;
  for (const auto& [slot, group] : updates)
    all.push_back({.p = slot.values(),
                   .g = slot.parameter.tensor.grad(),
                   .m = options_.momentum == 0 ? Tensor() : slot.state[0].tensor,
                   .parameter = slot.bf16_parameter(),
                   .learning_rate = group.learning_rate,
                   .decay = group.weight_decay});
  device_kernels(device).sgd(
      {.momentum = options_.momentum, .scale = gradient_scale(), .nesterov = options_.nesterov},
      all);
}

}  // namespace ringside::autograd

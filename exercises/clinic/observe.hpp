// What the clinic notes of a training: a line of JSON for each step of a rank, in the file
// $RINGSIDE_CLINIC/RANK.jsonl. The clinic edits its calls into training/trainer.cpp and step.cpp.
#pragma once

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "autograd/nn/module.hpp"
#include "transformer/data/batches.hpp"

namespace ringside::clinic {

inline std::uint64_t hash_of(const void* data, std::size_t bytes) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  return hash;
}

// Of the step at hand: the text that this rank has drawn, and the norms of its gradients.
inline std::uint64_t drawn = 0;
inline std::string gradients;

inline void saw_batch(const transformer::Batch& batch) {
  drawn = hash_of(batch.input.data(), batch.input.size() * sizeof(batch.input[0]));
}

inline bool is_in_memory(const autograd::Tensor& tensor) {
  return tensor.defined() && tensor.storage()->data() != nullptr && tensor.is_contiguous();
}

inline void add(std::string& list, const std::string& name, const std::string& value) {
  list += fmt::format("{}\"{}\": {}", list.empty() ? "" : ", ", name, value);
}

// After the ranks have averaged the gradients, before they are clipped.
inline void saw_gradients(const autograd::Module& model) {
  gradients.clear();
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!is_in_memory(parameter.grad())) continue;
    double squares = 0;
    for (const double each : parameter.grad().values<double>()) squares += each * each;
    add(gradients, name, fmt::format("{:.17g}", std::sqrt(squares)));
  }
}

inline void saw_step(const autograd::Module& model, std::int64_t step, double gradient_norm) {
  const char *folder = std::getenv("RINGSIDE_CLINIC"), *rank = std::getenv("RANK");
  if (folder == nullptr) return;
  std::string parameters;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!is_in_memory(parameter)) continue;
    const auto values = parameter.values<double>();
    add(parameters, name, fmt::format("\"{:016x}\"", hash_of(values.data(), values.size_bytes())));
  }
  std::ofstream file(fmt::format("{}/{}.jsonl", folder, rank ? rank : "0"), std::ios::app);
  file << fmt::format(R"({{"step": {}, "drawn": "{:016x}", "gradient_norm": {:.17g}, )", step,
                      drawn, gradient_norm)
       << fmt::format(R"("gradients": {{{}}}, "parameters": {{{}}}}})", gradients, parameters)
       << "\n";
}

}  // namespace ringside::clinic

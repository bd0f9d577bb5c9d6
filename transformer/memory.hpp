// MemoryNeed: an estimate of the memory of a run, made before anything is allocated.
#pragma once

#include <algorithm>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "transformer/config.hpp"
#include "transformer/model_part.hpp"
#include "transformer/trainer.hpp"

namespace ringside::transformer {

// Bytes on one rank. They are doubles because the sizes in a file may exceed any integer.
struct MemoryNeed {
  double parameters = 0, gradients = 0, optimizer = 0;

  // At the peak: all of the forward pass of one micro-batch, and the part of backward that needs
  // most; in a pipeline also the forward passes of the other micro-batches that are under way.
  double activations = 0;

  // The whole model, before the parallel strategy shards it.
  double before_sharding = 0;

  double total() const {
    return std::max(before_sharding, parameters + gradients + optimizer + activations);
  }
};

// What one rank keeps under a parallel strategy.
struct Held {
  // A device computes more rows of logits at a time, and multiplies bf16 without copies in fp32.
  autograd::Device device = autograd::Device::cpu;

  // The part of the model that its matrices and layers are.
  ModelPart part = {};
  bool divides_sequence = false;  // the residual stream is divided among the tensor ranks, too

  // A pipeline keeps the activations of several micro-batches at a time; so many of all its layers.
  double micro_batches_kept = 1;
  // ... and on the rank of the last stage, at the head: it computes its gradients in forward.
  double heads_kept = 1;
  // Backward is done in two parts: what a block keeps is freed by the second one.
  bool splits_backward = false;

  // Fractions of the part.
  double parameters = 1, gradients = 1, optimizer = 1;

  // Buckets hold whole gradients while these are reduced: `buckets_under_way` of them, one that is
  // being filled (as large as the largest parameter, if that is larger), and the gradient that
  // backward is adding to it.
  double bucket_bytes = 0;
  double buckets_under_way = 0;

  // Whether a unit (a block; the embedding; norm and head) is whole while it runs. Two units of
  // parameters are then whole at a time; of gradients, one unit, the copy that backward makes, and
  // two blocks that are being reduced.
  bool whole_units = false;
};

// The estimate is a few per cent too high. A test compares it with the bytes that are counted.
MemoryNeed memory_needed(const Config& config, const TrainerOptions& options, autograd::DType dtype,
                         int data_ranks, const Held& held = {});

// For evaluate() with `sequences` sequences of `length` tokens at once, and the logits of
// `kept_logits` tokens kept.
MemoryNeed memory_needed_to_evaluate(const Config& config, autograd::DType dtype, double sequences,
                                     double length, bool gradients, double kept_logits = 0,
                                     autograd::Device device = autograd::Device::cpu);

// For generate() with a prompt of `tokens` tokens, including the KV cache.
MemoryNeed memory_needed_to_generate(const Config& config, autograd::DType dtype, double tokens);

// Bytes of the parameters alone.
double parameter_bytes(const Config& config, autograd::DType dtype);

}  // namespace ringside::transformer

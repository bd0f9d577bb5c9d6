// Tensors as arrays of a safetensors file, and back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "autograd/tensor/region.hpp"
#include "autograd/tensor/tensor.hpp"
#include "transformer/checkpoint/safetensors.hpp"

namespace ringside::transformer {

// The element type in which a tensor of this dtype is stored.
StoredType stored_type(autograd::DType dtype);

// A contiguous CPU tensor as an array to be written. It refers to the tensor's memory, so the
// tensor must stay alive until the array is written.
ArrayView view_of(std::string name, const autograd::Tensor& tensor);

// Writes tensors from any device as one safetensors file. All of them are copied to the CPU first.
void write_tensors(const std::filesystem::path& path, std::vector<autograd::NamedTensor> tensors);

// Reads a region of the array `name`, and nothing else of it, into a tensor of the region's extent
// on any device. Converts F16, BF16, F32 and F64 to the tensor's dtype. Throws Error that names the
// array if it is missing or its shape is not region.whole.
void read_tensor(SafetensorsFile& file, const std::string& name, const autograd::Region& region,
                 const autograd::Tensor& tensor);

}  // namespace ringside::transformer

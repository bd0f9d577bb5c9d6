// The functions of cuBLAS that Ringside calls, as plain loops in fp32. Matrices are column-major.
#include <algorithm>
#include <cstring>
#include <vector>

#include <cublas_api.h>

#include "collectives/half.hpp"
#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/memory.hpp"
#include "tests/cuda_standin/stream.hpp"

using namespace ringside::standin;
using ringside::collectives::Bf16;

struct cublasContext {
  cudaStream_t stream = nullptr;
  bool has_workspace = false;  // that the caller gave
};

namespace {

// A matrix in device memory, with its number of rows and columns as stored.
struct Matrix {
  const void* at = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, leading = 0;

  std::size_t element_bytes() const { return type == CUDA_R_16BF ? 2 : 4; }
  std::size_t offset(std::int64_t element) const {
    return static_cast<std::size_t>(element) * element_bytes();
  }
  // Whether its leading dimension and its memory are as cuBLAS wants them.
  bool is_valid() const {
    if (type != CUDA_R_32F && type != CUDA_R_16BF) return false;
    if (leading < std::max<std::int64_t>(1, rows)) return false;
    if (rows == 0 || columns == 0) return true;
    const Place place = place_of(at);
    return place.type == cudaMemoryTypeDevice &&
           place.bytes_left >= offset((columns - 1) * leading + rows);
  }

  // memcpy is what ThreadSanitizer sees of the access.
  std::vector<float> read() const {
    std::vector<float> values;
    if (rows == 0) return values;
    for (std::int64_t column = 0; column < columns; ++column) {
      std::vector<std::byte> bytes(offset(rows));
      std::memcpy(bytes.data(), static_cast<const std::byte*>(at) + offset(column * leading),
                  bytes.size());
      for (std::int64_t row = 0; row < rows; ++row)
        values.push_back(type == CUDA_R_16BF
                             ? static_cast<float>(reinterpret_cast<const Bf16*>(bytes.data())[row])
                             : reinterpret_cast<const float*>(bytes.data())[row]);
    }
    return values;
  }
  void write(const std::vector<float>& values) const {
    for (std::int64_t column = 0; column < columns; ++column) {
      std::vector<std::byte> bytes(offset(rows));
      for (std::int64_t row = 0; row < rows; ++row) {
        const float value = values[static_cast<std::size_t>(column * rows + row)];
        if (type == CUDA_R_16BF)
          reinterpret_cast<Bf16*>(bytes.data())[row] = Bf16(value);
        else
          reinterpret_cast<float*>(bytes.data())[row] = value;
      }
      std::memcpy(static_cast<std::byte*>(const_cast<void*>(at)) + offset(column * leading),
                  bytes.data(), bytes.size());
    }
  }
};

std::vector<float> transposed(const std::vector<float>& values, std::int64_t rows,
                              std::int64_t columns) {
  std::vector<float> result(values.size());
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t row = 0; row < rows; ++row)
      result[static_cast<std::size_t>(row * columns + column)] =
          values[static_cast<std::size_t>(column * rows + row)];
  return result;
}

struct Product {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;
  Matrix a, b, c;

  void compute() const {
    const auto left = transpose_a ? transposed(a.read(), k, m) : a.read(),
               right = transpose_b ? transposed(b.read(), n, k) : b.read();
    // If beta is 0, the old result is not read.
    std::vector<float> sums(static_cast<std::size_t>(m * n));
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l) {
        const float factor = alpha * right[static_cast<std::size_t>(j * k + l)];
        const float* const from = left.data() + l * m;
        float* const into = sums.data() + j * m;
        for (std::int64_t i = 0; i < m; ++i) into[i] += factor * from[i];
      }
    if (beta != 0) {
      const auto old = c.read();
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += beta * old[i];
    }
    c.write(sums);
  }
};

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (enter() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  Stream::wait_for_device(current_device());
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->has_workspace = false;  // cuBLAS goes back to its own
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  const Place place = place_of(workspace);
  const bool valid = place.type == cudaMemoryTypeDevice && place.bytes_left >= bytes &&
                     reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0;
  handle->has_workspace = valid;
  return valid ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE      ? "an unsupported value or parameter"
         : status == CUBLAS_STATUS_EXECUTION_FAILED ? "the function failed to launch on the GPU"
                                                    : "the cuBLAS library failed";
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t op_a,
                               cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType_t type_a, int64_t lda,
                               const void* b, cudaDataType_t type_b, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t type_c, int64_t ldc, cublasComputeType_t,
                               cublasGemmAlgo_t) {
  if (enter() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const bool ta = op_a != CUBLAS_OP_N, tb = op_b != CUBLAS_OP_N;
  const Product product{ta,
                        tb,
                        m,
                        n,
                        k,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        {a, type_a, ta ? k : m, ta ? m : k, lda},
                        {b, type_b, tb ? n : k, tb ? k : n, ldb},
                        {c, type_c, m, n, ldc}};
  if (m < 0 || n < 0 || k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!product.a.is_valid() || !product.b.is_valid() || !product.c.is_valid())
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto stream = Stream::of(handle->stream);
  if (!stream) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!handle->has_workspace)
    violation("a product in a workspace that is not the handle's own: its bits may differ");
  stream->add([product] {
    const Access access;
    product.compute();
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

#include "autograd/cuda/blas.hpp"

#include <cublas_api.h>

#include <algorithm>
#include <string>

#include "autograd/cuda/stream.hpp"
#include "autograd/kernels/devices.hpp"
#include "autograd/kernels/profile.hpp"
#include "base/environment.hpp"
#include "base/system/shared_library.hpp"

namespace ringside::autograd::cuda {
namespace {

// The functions of cuBLAS that this file calls, found by name.
struct Library {
  Library();

  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS) fail("cuBLAS: {}: {}", what, status_string(status));
  }

  SharedLibrary file;
  decltype(cublasCreate_v2)* create = nullptr;
  decltype(cublasDestroy_v2)* destroy = nullptr;
  decltype(cublasSetStream_v2)* set_stream = nullptr;
  decltype(cublasSetWorkspace_v2)* set_workspace = nullptr;
  decltype(cublasSetMathMode)* set_math_mode = nullptr;
  decltype(cublasGemmEx_64)* gemm = nullptr;
  decltype(cublasGetStatusString)* status_string = nullptr;
};

Library::Library()
    : file("cuBLAS", fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR), RINGSIDE_CUDA_LIBRARIES) {
  file.find(create, "cublasCreate_v2");
  file.find(destroy, "cublasDestroy_v2");
  file.find(set_stream, "cublasSetStream_v2");
  file.find(set_workspace, "cublasSetWorkspace_v2");
  file.find(set_math_mode, "cublasSetMathMode");
  file.find(gemm, "cublasGemmEx_64");
  file.find(status_string, "cublasGetStatusString");
}

const Library& library() {
  static const Library opened;
  return opened;
}

// The cuBLAS handle of a thread. cuBLAS gives the same bits on every run if each handle has its own
// stream and workspace.
class Handle {
 public:
  // Delegates, so that the handle is destroyed if what follows fails.
  Handle() : Handle(created()) {
    library().check(library().set_stream(handle_, compute_stream()), "setting the stream");
    workspace_ = cuda_memory().allocate(workspace_bytes);
    if (workspace_)
      library().check(library().set_workspace(handle_, workspace_, workspace_bytes),
                      "setting the workspace");
    // Partial sums of long products are added in fp32 too, not in the type of the result.
    library().check(
        library().set_math_mode(handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
        "setting the math mode");
  }
  ~Handle() {
    if (device_is_stuck) return;  // it would wait for the device
    static_cast<void>(library().destroy(handle_));
    if (workspace_) cuda_memory().free(workspace_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  static cublasHandle_t of_thread() {
    thread_local const Handle handle;
    return handle.handle_;
  }

 private:
  explicit Handle(cublasHandle_t handle) : handle_(handle) {}
  static cublasHandle_t created() {
    cublasHandle_t handle = nullptr;
    library().check(library().create(&handle), "creating a handle");
    return handle;
  }

  // 32 MiB, which cuBLAS recommends for Hopper.
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

cudaDataType_t type_of(const Tensor& x) {
  return x.dtype() == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasComputeType_t compute_type(const Tensor& a) {
  static const bool tf32 = environment("RINGSIDE_TF32").value_or("0") == "1";
  return tf32 && a.dtype() == DType::fp32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

// cuBLAS expects column-major matrices and sees our row-major ones transposed. So this asks for C^T
// = op(B)^T op(A)^T.
void blas_gemm(const MatrixProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  const auto op = [](Transpose t) { return t == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  // A leading dimension is at least 1, also of a matrix without columns.
  const auto leading = [](std::int64_t columns) { return std::max<std::int64_t>(1, columns); };
  const std::int64_t m = p.m, n = p.n, k = p.k, lda = leading(p.a == Transpose::yes ? m : k),
                     ldb = leading(p.b == Transpose::yes ? k : n);
  const float one = 1;
  const auto& lib = library();
  const auto status = lib.gemm(Handle::of_thread(), op(p.b), op(p.a), n, m, k, &one, b.address(),
                               type_of(b), ldb, a.address(), type_of(a), lda, &p.beta, c.address(),
                               type_of(c), n, compute_type(a), CUBLAS_GEMM_DEFAULT);
  Profile::note_gemm({p.a, p.b, m, n, k}, 0);
  if (status != CUBLAS_STATUS_SUCCESS)
    fail("cuBLAS: a product of {} x {} and {} x {} {}: {}", m, k, k, n, name_of(a.dtype()),
         lib.status_string(status));
}

}  // namespace ringside::autograd::cuda

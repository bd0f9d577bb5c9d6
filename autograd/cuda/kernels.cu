// Compiles every kernel for the GPU. In a file that includes no fmt: nvcc cannot compile fmt 9.
#include <tuple>

#include "autograd/cuda/launch.cuh"
#include "autograd/kernels/shared/attention.hpp"
#include "autograd/kernels/shared/attention_backward.hpp"
#include "autograd/kernels/shared/cross_entropy.hpp"
#include "autograd/kernels/shared/elementwise.hpp"
#include "autograd/kernels/shared/embedding.hpp"
#include "autograd/kernels/shared/optimizer.hpp"
#include "autograd/kernels/shared/rms_norm.hpp"
#include "autograd/kernels/shared/rope.hpp"
#include "autograd/kernels/shared/strided.hpp"
#include "autograd/kernels/shared/sums.hpp"

namespace ringside::autograd::cuda {

// Addresses of functions. (GCC deduces no std::tuple from their names.)
template <class... Functions>
struct LaunchList {
  constexpr explicit LaunchList(Functions*... functions) : all(functions...) {}
  std::tuple<Functions*...> all;
};

// The kernels for both element types. Taking the address of launch<Kernel> instantiates it. A
// kernel that is launched but missing here is a linker error.
template <class S>
struct KernelsOf {
  static constexpr LaunchList launches{launch<Elementwise<S, Add>>,
                                       launch<Elementwise<S, Multiply>>,
                                       launch<Elementwise<S, Scale>>,
                                       launch<Elementwise<S, ScaleBy>>,
                                       launch<Elementwise<S, Relu>>,
                                       launch<Elementwise<S, ReluBackward>>,
                                       launch<Elementwise<S, Gelu>>,
                                       launch<Elementwise<S, GeluBackward>>,
                                       launch<Elementwise<S, Silu>>,
                                       launch<Elementwise<S, SiluBackward>>,
                                       launch<Elementwise<S, Swiglu>>,
                                       launch<Elementwise<S, SwigluBackward>>,
                                       launch<CombineStrided<S, Add>>,
                                       launch<CombineStrided<S, Multiply>>,
                                       launch<Fill<S>>,
                                       launch<SumTo<S>>,
                                       launch<AttentionForward<S, 32>>,
                                       launch<AttentionForward<S, 64>>,
                                       launch<AttentionForward<S, 128>>,
                                       launch<AttentionDelta<S>>,
                                       launch<AttentionKeysBackward<S, 32>>,
                                       launch<AttentionKeysBackward<S, 64>>,
                                       launch<AttentionKeysBackward<S, 128>>,
                                       launch<AttentionQueriesBackward<S, 32>>,
                                       launch<AttentionQueriesBackward<S, 64>>,
                                       launch<AttentionQueriesBackward<S, 128>>,
                                       launch<CrossEntropy<S, S>>,
                                       launch<CrossEntropyBackward<S, S>>,
                                       launch<OptimizerUpdate<AdamWRule, S, S>>,
                                       launch<OptimizerUpdate<SgdRule, S, S>>,
                                       launch<OptimizerUpdate<MomentumRule, S, S>>,
                                       launch<SquareSums<S>>,
                                       launch<RmsNorm<S, 32>>,
                                       launch<RmsNorm<S, 256>>,
                                       launch<RmsNormBackward<S, 32>>,
                                       launch<RmsNormBackward<S, 256>>,
                                       launch<ColumnSums<S>>,
                                       launch<Rope<S>>,
                                       launch<Embedding<S>>,
                                       launch<EmbeddingBackward<S>>,
                                       launch<EmbeddingPartialSums<S>>};
};
template struct KernelsOf<float>;
template struct KernelsOf<Bf16>;

template cudaError_t launch(const CrossEntropy<float, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<AdamWRule, Bf16, float>&, std::int64_t,
                            cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<SgdRule, Bf16, float>&, std::int64_t,
                            cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<MomentumRule, Bf16, float>&, std::int64_t,
                            cudaStream_t);
template cudaError_t launch(const Total<double, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Total<float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const PartialSums<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Fill<std::int32_t>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<std::uint16_t, std::uint16_t>&, std::int64_t,
                            cudaStream_t);
template cudaError_t launch(const CopyStrided<std::uint32_t, std::uint32_t>&, std::int64_t,
                            cudaStream_t);
template cudaError_t launch(const CopyStrided<PackBits, PackBits>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<Bf16, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<float, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Convert<Bf16, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Convert<float, Bf16>&, std::int64_t, cudaStream_t);

}  // namespace ringside::autograd::cuda

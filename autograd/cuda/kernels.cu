// Every kernel that is launched, compiled for the GPU.
#include "autograd/cuda/device_block.cuh"
#include "autograd/cuda/kernels/attention.hpp"
#include "autograd/cuda/kernels/cross_entropy.hpp"
#include "autograd/cuda/kernels/elementwise.hpp"
#include "autograd/cuda/kernels/embedding.hpp"
#include "autograd/cuda/kernels/optimizer.hpp"
#include "autograd/cuda/kernels/rms_norm.hpp"
#include "autograd/cuda/kernels/rope.hpp"
#include "autograd/cuda/kernels/square_sums.hpp"
#include "autograd/cuda/kernels/strided.hpp"
#include "autograd/cuda/kernels/sum.hpp"

namespace ringside::autograd::cuda {

template cudaError_t launch(const Elementwise<float, Add>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, Subtract>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, Multiply>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, Scale>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, ScaleBy>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, Relu>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, ReluBackward>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, Silu>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, SiluBackward>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, Swiglu>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<float, SwigluBackward>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CombineStrided<float, Add>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CombineStrided<float, Subtract>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CombineStrided<float, Multiply>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Fill<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumTo<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionForward<float, 32>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionForward<float, 64>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionForward<float, 128>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionForward<Bf16, 32>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionForward<Bf16, 64>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionForward<Bf16, 128>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionDelta<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionDelta<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionKeysBackward<float, 32>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionKeysBackward<float, 64>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionKeysBackward<float, 128>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionKeysBackward<Bf16, 32>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionKeysBackward<Bf16, 64>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionKeysBackward<Bf16, 128>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionQueriesBackward<float, 32>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionQueriesBackward<float, 64>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionQueriesBackward<float, 128>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionQueriesBackward<Bf16, 32>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionQueriesBackward<Bf16, 64>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const AttentionQueriesBackward<Bf16, 128>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CrossEntropy<float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CrossEntropy<float, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CrossEntropy<Bf16, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CrossEntropyBackward<float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CrossEntropyBackward<Bf16, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<AdamWRule, float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<AdamWRule, Bf16, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<AdamWRule, Bf16, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<SgdRule, float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<SgdRule, Bf16, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<SgdRule, Bf16, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<MomentumRule, float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<MomentumRule, Bf16, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const OptimizerUpdate<MomentumRule, Bf16, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const ScaleMany<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const ScaleMany<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SquareSums<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SquareSums<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Total<double, double>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Total<float, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNorm<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNormBackward<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumOfLines<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Rope<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Embedding<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const EmbeddingBackward<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumParts<float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Add>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Subtract>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Multiply>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Scale>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, ScaleBy>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Relu>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, ReluBackward>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Silu>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, SiluBackward>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, Swiglu>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Elementwise<Bf16, SwigluBackward>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CombineStrided<Bf16, Add>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CombineStrided<Bf16, Subtract>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CombineStrided<Bf16, Multiply>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Fill<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumTo<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNorm<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const RmsNormBackward<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const SumOfLines<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Rope<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Embedding<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const EmbeddingBackward<Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Fill<std::int32_t>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<std::uint16_t, std::uint16_t>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<std::uint32_t, std::uint32_t>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<Bf16, float>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const CopyStrided<float, Bf16>&, std::int64_t, cudaStream_t);
template cudaError_t launch(const Total<double, float>&, std::int64_t, cudaStream_t);

}  // namespace ringside::autograd::cuda

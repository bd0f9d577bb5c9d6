// The student's all-reduces on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr. The
// ranks share the GPU: each has some blocks of one launch.
#include <bit>
#include <cstring>
#include <memory>

#include <cuda/atomic>
#include <nv/target>

#include "collectives.hpp"
#include "exercises/judge/gpu/measured.hpp"

namespace {
using namespace ringside::gpu;
using namespace student::collectives::one_sided;

// MEMORY and TEAM on a GPU; all are __host__ __device__ because the functions that call them are.
// Words have the scope of the whole system: those of ranks with a GPU each would belong to another
// GPU.
struct OnGpu {
  template <class T>
  using Word = cuda::atomic_ref<T, cuda::thread_scope_system>;
  using Floats = student::collectives::one_sided::Pack<float>;

  __host__ __device__ static Number load_acquire(const Number& word) {
    return Word<Number>(const_cast<Number&>(word)).load(cuda::memory_order_acquire);
  }
  [[maybe_unused]] __host__ __device__ static Number load_relaxed(const Number& word) {
    return Word<Number>(const_cast<Number&>(word)).load(cuda::memory_order_relaxed);
  }
  __host__ __device__ static void store_release(Number& word, Number value) {
    Word<Number>(word).store(value, cuda::memory_order_release);
  }
  __host__ __device__ static void store_relaxed(Number& word, Number value) {
    Word<Number>(word).store(value, cuda::memory_order_relaxed);
  }
  __host__ __device__ static Packet load_packet(const Packet& packet) {
    return Word<Packet>(const_cast<Packet&>(packet)).load(cuda::memory_order_relaxed);
  }
  __host__ __device__ static void store_packet(Packet& packet, Packet value) {
    Word<Packet>(packet).store(value, cuda::memory_order_relaxed);
  }
  __host__ __device__ static std::uint64_t nanoseconds() {
    std::uint64_t now = 0;
    NV_IF_TARGET(NV_IS_DEVICE, (asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));))
    return now;
  }
  __host__ __device__ static void pause() {}
  __host__ __device__ static float widen(float element) { return element; }
  template <class T>
  __host__ __device__ static T narrow(float value) {
    return value;
  }
  __host__ __device__ static float load(const float* from, const float&) { return *from; }
  __host__ __device__ static Floats load(const float* from, const Floats&) {
    return std::bit_cast<Floats>(*reinterpret_cast<const uint4*>(from));  // 16 bytes at once
  }
  __host__ __device__ static void store(float* into, float value) { *into = value; }
  __host__ __device__ static void store([[maybe_unused]] float* into,
                                        [[maybe_unused]] const Floats& value) {
    NV_IF_TARGET(NV_IS_DEVICE,
                 (__stwb(reinterpret_cast<uint4*>(into), std::bit_cast<uint4>(value));))
  }
};
struct Block {
  int thread, threads;
  __host__ __device__ int index() const { return thread; }
  __host__ __device__ int count() const { return threads; }
  __host__ __device__ void sync() const { NV_IF_TARGET(NV_IS_DEVICE, (__syncthreads();)) }
  __host__ __device__ bool any(bool lost) const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __syncthreads_or(lost) != 0;), (return lost;))
  }
};

constexpr int threads = 512;
constexpr float scale = 0.5f;

struct Task {
  int size;
  std::size_t count;
  Number number;  // of a one-shot; 0: two-shot
  Buffers<float> buffers;
  Mailbox** mailboxes;
  HostWords* hosts;
  PacketBox** boxes;
};

__global__ void __launch_bounds__(threads, 1) all_reduce(const __grid_constant__ Task task) {
  const Block team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  BlockContext context;
  context.rank = static_cast<int>(blockIdx.y), context.size = task.size;
  context.block = static_cast<int>(blockIdx.x), context.blocks = static_cast<int>(gridDim.x);
  context.patience = 2'000'000'000;
  context.mailboxes = task.mailboxes, context.host = task.hosts + context.rank;
  if (task.number == 0)
    two_shot_all_reduce<OnGpu>(team, context, task.buffers,
                               stripe<float>(Range{0, task.count}, context.block, context.blocks),
                               scale);
  else
    one_shot_all_reduce<OnGpu>(team, context, task.buffers.input[context.rank],
                               task.buffers.output[context.rank], task.count, task.boxes,
                               task.number, scale);
}

template <class T>
T* zeros(std::size_t n, const char* name) {
  T* memory = nullptr;
  must(cudaMallocManaged(&memory, n * sizeof(T)), name);
  must(cudaMemset(memory, 0, n * sizeof(T)), name);
  return memory;
}

// `size` ranks with `count` floats each. Their memory is freed when the program ends.
class World {
 public:
  World(int size, std::size_t count) {
    task_.size = size, task_.count = count, task_.number = 0;
    task_.mailboxes = zeros<Mailbox*>(most_ranks, "mailboxes");
    task_.boxes = zeros<PacketBox*>(most_ranks, "boxes");
    must(cudaDeviceSynchronize(), "memory");
    must(cudaHostAlloc(&task_.hosts, most_ranks * sizeof(HostWords), cudaHostAllocMapped), "hosts");
    std::memset(static_cast<void*>(task_.hosts), 0, most_ranks * sizeof(HostWords));
    for (int rank = 0; rank < size; ++rank) {
      void* memory = nullptr;
      must(cudaMalloc(&memory, sizeof(Mailbox)), "a mailbox");
      must(cudaMemset(memory, 0, sizeof(Mailbox)), "a mailbox");
      task_.mailboxes[rank] = static_cast<Mailbox*>(memory);
      must(cudaMalloc(&memory, sizeof(PacketBox)), "a box");
      must(cudaMemset(memory, 0, sizeof(PacketBox)), "a box");
      task_.boxes[rank] = static_cast<PacketBox*>(memory);
      const auto n = static_cast<std::int64_t>(count);
      inputs_.push_back(std::make_unique<NumbersOnGpu<float>>("input", n));
      inputs_.back()->fill(static_cast<std::uint32_t>(rank + 1));
      outputs_.push_back(std::make_unique<NumbersOnGpu<float>>("output", n));
      task_.buffers.input[rank] = inputs_.back()->data();
      task_.buffers.output[rank] = outputs_.back()->data();
    }
    cudaDeviceProp gpu;
    must(cudaGetDeviceProperties(&gpu, 0), "the GPU");
    blocks_ = std::min(gpu.multiProcessorCount / size, most_blocks);
  }

  void call(bool one_shot) {
    task_.number = one_shot ? ++calls_ : 0;
    void* arguments[] = {&task_};
    const dim3 blocks(static_cast<unsigned>(one_shot ? std::min(blocks_, 8) : blocks_),
                      static_cast<unsigned>(task_.size));
    must(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(all_reduce), blocks, dim3(threads),
                                     arguments, 0, nullptr),
         "all_reduce");
  }

  void expect(const char* name) const {
    for (int rank = 0; rank < task_.size; ++rank) {
      if (task_.hosts[rank].gave_up.value != 0) {
        std::printf("wrong on the GPU: %s: rank %d gave up\n", name, rank);
        std::exit(1);
      }
      outputs_[static_cast<std::size_t>(rank)]->expect(
          [&](std::int64_t i) {
            double sum = 0;
            for (int r = 0; r < task_.size; ++r)
              sum += number(static_cast<std::uint32_t>(r + 1), i);
            return scale * sum;
          },
          1e-5);
    }
  }

 private:
  Task task_{};
  std::vector<std::unique_ptr<NumbersOnGpu<float>>> inputs_, outputs_;
  int blocks_ = 1;
  Number calls_ = 0;
};

}  // namespace

int main() {
  const Machine machine;
  constexpr std::size_t all = std::size_t{1} << 28;
  const NumbersOnGpu<float> from("a copy", all / 4), to("a copy", all / 4);
  const double copy =
      2.0 * all / median_time("cudaMemcpy", [&] {
        must(cudaMemcpyAsync(to.data(), from.data(), all, cudaMemcpyDeviceToDevice), "cudaMemcpy");
      });
  for (const int size : {2, 4, 8})
    for (const bool one_shot : {true, false}) {
      const std::size_t count = one_shot ? 1 << 12 : 1 << 22;
      World world(size, count);
      const std::string name =
          (one_shot ? "one-shot, 16 KB, " : "two-shot, 16 MB, ") + std::to_string(size) + " ranks";
      const double seconds = median_time(name.c_str(), [&] { world.call(one_shot); });
      world.expect(name.c_str());
      if (one_shot) std::printf("%-24s values right %9.1f us\n", name.c_str(), 1e6 * seconds);
      // Each number is loaded and stored once for each rank.
      else
        Machine::print(name.c_str(), seconds, 8.0 * size * static_cast<double>(count) / 1e9, "GB/s",
                       copy / 1e9, "of cudaMemcpy's");
    }
}

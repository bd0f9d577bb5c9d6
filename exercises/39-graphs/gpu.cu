// The student's program on a GPU: nvcc -std=c++20 -arch=native --expt-relaxed-constexpr.
#include <chrono>

#include "captured.hpp"
#include "exercises/judge/gpu/measured.hpp"

namespace {
using namespace ringside::gpu;

constexpr int n = 4096, layers = 12;  // numbers of a layer: its kernels take less than their launch

enum Kind { forward_pass, backward_pass, reduction, weight_update };
struct Layer {
  float *activations, *gradient, *weights;
};

// On the GPU and on the CPU. The mean is that with a replica whose gradient is 0.
__host__ __device__ void work(Kind kind, const Layer& layer, const float* in, float* error,
                              bool last, float rate, int i) {
  if (kind == forward_pass) layer.activations[i] = layer.weights[i] * in[i];
  if (kind == backward_pass) {
    const float its = last ? layer.activations[i] - 1 : error[i];
    layer.gradient[i] = its * layer.activations[i];
    error[i] = its * layer.weights[i];
  }
  if (kind == reduction) layer.gradient[i] *= 0.5f;
  if (kind == weight_update) layer.weights[i] -= rate * layer.gradient[i];
}
// The rate is in memory, or else `argument`.
__global__ void kernel(Kind kind, Layer layer, const float* in, float* error, bool last,
                       const float* rate, float argument) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) work(kind, layer, in, error, last, rate ? *rate : argument, i);
}

class CudaTraining : public CudaStreams<TrainingDevice> {
 public:
  explicit CudaTraining(int steps) : steps_(steps), layers_(layers) {
    must(cudaMallocHost(&batches_, sizeof(float) * n * steps), "pinned memory");
    must(cudaMallocHost(&rates_, sizeof(float) * steps), "pinned memory");
    for (int i = 0; i < n * steps; ++i) batches_[i] = number(1, i);
    for (int step = 0; step < steps; ++step) rates_[step] = 0.01f / static_cast<float>(1 + step);
    const std::vector<float> ones(n, 1);
    for (float** each : {&batch_, &error_, &rate_})
      must(cudaMalloc(each, sizeof(float) * n), "memory");
    for (Layer& layer : layers_) {
      layer.gradient = nullptr;
      must(cudaMalloc(&layer.activations, sizeof(float) * n), "memory");
      must(cudaMalloc(&layer.weights, sizeof(float) * n), "memory");
      must(cudaMemcpy(layer.weights, ones.data(), sizeof(float) * n, cudaMemcpyHostToDevice),
           "weights");
    }
  }
  ~CudaTraining() override {
    for (float* each : {batch_, error_, rate_}) cudaFree(each);
    for (Layer& layer : layers_)
      for (float* each : {layer.activations, layer.gradient, layer.weights}) cudaFree(each);
    cudaFreeHost(batches_);
    cudaFreeHost(rates_);
  }

  void allocate_gradient(int layer) override {
    must(cudaMalloc(&layers_[layer].gradient, sizeof(float) * n), "allocate_gradient");
  }
  void copy_batch(int stream, int step) override {
    must(cudaMemcpyAsync(batch_, batches_ + n * step, sizeof(float) * n, cudaMemcpyHostToDevice,
                         streams_[stream]),
         "copy_batch");
  }
  void copy_rate(int stream, int step) override {
    must(cudaMemcpyAsync(rate_, rates_ + step, sizeof(float), cudaMemcpyHostToDevice,
                         streams_[stream]),
         "copy_rate");
  }
  void forward(int stream, int layer) override { launch(forward_pass, stream, layer); }
  void backward(int stream, int layer) override { launch(backward_pass, stream, layer); }
  void reduce(int stream, int layer) override { launch(reduction, stream, layer); }
  void update(int stream, int layer) override { launch(weight_update, stream, layer, rate_); }
  void update_by(int stream, int layer, float rate) override {
    launch(weight_update, stream, layer, nullptr, rate);
  }
  float rate(int step) const override { return rates_[step]; }
  void begin_capture(int stream) override {
    must(cudaStreamBeginCapture(streams_[stream], cudaStreamCaptureModeGlobal), "begin_capture");
  }
  int end_capture(int stream) override {
    cudaGraph_t graph = nullptr;
    must(cudaStreamEndCapture(streams_[stream], &graph), "end_capture");
    must(cudaGraphInstantiate(&graphs_.emplace_back(), graph, 0), "end_capture");
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph, int stream) override {
    must(cudaGraphLaunch(graphs_[graph], streams_[stream]), "replay");
  }

  // That the weights are those of the CPU.
  void expect() const {
    std::vector<std::vector<float>> memory(3 * layers, std::vector<float>(n, 1));
    std::vector<Layer> all;
    for (int layer = 0; layer < layers; ++layer)
      all.push_back(
          {memory[3 * layer].data(), memory[3 * layer + 1].data(), memory[3 * layer + 2].data()});
    std::vector<float> error(n);
    for (int step = 0; step < steps_; ++step)
      for (int i = 0; i < n; ++i) {
        const auto all_layers = [&](Kind kind, int layer) {
          const float* const in = layer > 0 ? all[layer - 1].activations : batches_ + n * step;
          work(kind, all[layer], in, error.data(), layer + 1 == layers, rates_[step], i);
        };
        for (int layer = 0; layer < layers; ++layer) all_layers(forward_pass, layer);
        for (int layer = layers - 1; layer >= 0; --layer)
          for (const Kind kind : {backward_pass, reduction}) all_layers(kind, layer);
        for (int layer = 0; layer < layers; ++layer) all_layers(weight_update, layer);
      }
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<float> seen(n);
      must(cudaMemcpy(seen.data(), layers_[layer].weights, sizeof(float) * n,
                      cudaMemcpyDeviceToHost),
           "weights");
      for (int i = 0; i < n; ++i) expect_number("weights", i, seen[i], all[layer].weights[i], 1e-3);
    }
  }

 private:
  void launch(Kind kind, int stream, int layer, const float* rate = nullptr, float argument = 0) {
    const float* const in = layer > 0 ? layers_[layer - 1].activations : batch_;
    kernel<<<n / 256, 256, 0, streams_[stream]>>>(kind, layers_[layer], in, error_,
                                                  layer + 1 == layers, rate, argument);
    must(cudaGetLastError(), "a kernel");
  }

  int steps_;
  float *batches_ = nullptr, *rates_ = nullptr;  // on the host
  float *batch_ = nullptr, *error_ = nullptr, *rate_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<cudaGraphExec_t> graphs_;
};

// The same steps without a graph.
void train_call_by_call(TrainingDevice& device, int count, int steps) {
  const int compute = device.new_stream(), network = device.new_stream();
  const int ready = device.new_event(), reduced = device.new_event();
  for (int layer = 0; layer < count; ++layer) device.allocate_gradient(layer);
  for (int step = 0; step < steps; ++step) {
    device.copy_batch(compute, step);
    device.copy_rate(compute, step);
    for (int layer = 0; layer < count; ++layer) device.forward(compute, layer);
    for (int layer = count - 1; layer >= 0; --layer) {
      device.backward(compute, layer);
      device.record(ready, compute);
      device.wait(network, ready);
      device.reduce(network, layer);
    }
    device.record(reduced, network);
    device.wait(compute, reduced);
    for (int layer = 0; layer < count; ++layer) device.update(compute, layer);
  }
  device.synchronize(compute);
}

// The median time of a step, without what comes before the first and after the last, in seconds.
template <class Train>
double time_of_step(const Train& train) {
  std::vector<double> seconds;
  for (int run = 0; run < 6; ++run) {
    double times[2] = {};
    for (const int many : {0, 1}) {
      CudaTraining device(many ? 600 : 100);
      const auto begin = std::chrono::steady_clock::now();
      train(device, layers, many ? 600 : 100);
      times[many] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (run == 0) device.expect();
    }
    if (run > 0) seconds.push_back((times[1] - times[0]) / 500);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
  return seconds[2];
}

}  // namespace

int main() {
  const Machine machine;
  const double calls = time_of_step(train_call_by_call), graph = time_of_step(student::gpu::train);
  std::printf(
      "%d layers                values right %9.1f us a step, %.2f of the %.1f us call by call\n",
      layers, 1e6 * graph, graph / calls, 1e6 * calls);
}

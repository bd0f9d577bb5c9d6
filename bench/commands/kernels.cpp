// `ringside bench kernels`: measures the kernels of a GPU, beside the GPU's limits. Kernels that
// move data are compared with copies, attention with matrix products.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/kernels/device_kernels.hpp"
#include "autograd/tensor/device_memory.hpp"
#include "base/clock.hpp"
#include "bench/commands/step_arguments.hpp"
#include "bench/operands.hpp"
#include "cli/options/command.hpp"
#include "cli/options/device_option.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/table.hpp"

namespace ringside::cli {
namespace {

using autograd::Device;
using autograd::DeviceKernels;
using autograd::DType;
using autograd::Tensor;

struct KernelsArguments {
  DeviceOption device{.name = "cuda"};
  std::string dtype = "bf16", size = "256MB", json;
  std::int64_t width = 1024, vocabulary = 32000;
  std::vector<std::int64_t> sequences{1024}, heads{64, 128};  // of attention
  int rounds = 7, calls = 10;
};

struct Row {
  std::string kernel;
  double seconds = 0, bytes = 0, flops = 0;  // of one call
};

// The tensors are matrices of `width` columns, in the storage dtype.
class KernelsBench {
 public:
  // `take` gets each row as soon as it is measured.
  KernelsBench(const KernelsArguments& args, Device device, std::function<void(const Row&)> take)
      : args_(args),
        take_(std::move(take)),
        device_(device),
        kernels_(autograd::device_kernels(device)),
        dtype_(autograd::dtype_named(args.dtype)),
        operands_(dtype_, device),
        rows_(std::max<std::int64_t>(
            16, static_cast<std::int64_t>(parse_bytes(args.size)) / args.width / size())) {}

  void measure() {
    warm_up();
    copy("copy");
    element_by_element();
    norms();
    rope();
    cross_entropy();
    optimizer();
    product();
    attention();
    copy("copy, again");
  }

 private:
  std::int64_t size() const { return dtype_ == DType::bf16 ? 2 : 4; }
  double bytes_of(double tensors) const {
    return tensors * static_cast<double>(rows_ * args_.width * size());
  }
  Tensor tensor(autograd::Shape shape, DType dtype) const {
    return Tensor::full(std::move(shape), 0.25, dtype, device_);
  }
  Tensor matrix() { return operands_.make({rows_, args_.width}); }

  // A GPU that has been idle runs at a fraction of its clock, and the first row is what all others
  // are compared with.
  void warm_up() {
    const std::int64_t n = std::clamp<std::int64_t>(rows_ / 16 * 16, 16, 4096);
    const Tensor a = operands_.make({n, n}), b = operands_.make({n, n}), c = tensor({n, n}, dtype_);
    const Deadline enough = Deadline::after(Seconds(device_ == Device::cuda ? 0.3 : 0));
    do {
      kernels_.gemm({.b = autograd::Transpose::yes, .m = n, .n = n, .k = n}, a, b, c);
      autograd::device_memory(device_).synchronise();
    } while (!enough.expired());
  }

  void take(const std::string& kernel, double bytes, double flops,
            const std::function<void()>& call) {
    auto& memory = autograd::device_memory(device_);
    call();
    std::vector<double> seconds;
    for (int round = 0; round < args_.rounds; ++round) {
      memory.synchronise();
      const auto start = Clock::now();
      for (int i = 0; i < args_.calls; ++i) call();
      memory.synchronise();
      seconds.push_back(seconds_since(start) / args_.calls);
    }
    take_({kernel, median(seconds), bytes, flops});
  }

  void copy(const char* name) {
    const Tensor x = matrix(), y = matrix();
    take(name, bytes_of(2), 0, [&] {
      autograd::device_memory(device_).copy_within(y.address(), x.address(),
                                                   static_cast<std::size_t>(x.elements() * size()));
    });
  }

  void element_by_element() {
    const Tensor a = matrix(), b = matrix(), c = matrix(), d = matrix(), e = matrix();
    take("add", bytes_of(3), 0, [&] { kernels_.add(a, b, c); });
    take("scale", bytes_of(2), 0, [&] { kernels_.scale(a, 0.5, b); });
    take("fill", bytes_of(1), 0, [&] { kernels_.fill(a, 0.25); });
    take("swiglu", bytes_of(3), 0, [&] { kernels_.swiglu(a, b, c); });
    take("swiglu backward", bytes_of(5), 0, [&] { kernels_.swiglu_backward(a, b, c, d, e); });
  }

  void norms() {
    const Tensor x = matrix(), y = matrix(), dx = matrix(), sum = matrix();
    const Tensor weight = tensor({args_.width}, dtype_), dweight = tensor({args_.width}, dtype_),
                 r = tensor({rows_}, DType::fp32);
    take("rms_norm", bytes_of(2), 0, [&] { kernels_.rms_norm(x, weight, 1e-5, y, r); });
    take("add_rms_norm", bytes_of(4), 0,
         [&] { kernels_.add_rms_norm(x, dx, weight, 1e-5, sum, y, r); });
    take("rms_norm backward", bytes_of(3), 0,
         [&] { kernels_.rms_norm_backward(y, x, weight, r, dx, dweight); });
  }

  void rope() {
    const std::int64_t head = 64, heads = std::max<std::int64_t>(1, args_.width / head),
                       tokens = std::min(rows_, args_.sequences.front()), batch = rows_ / tokens;
    const Tensor x = operands_.make({batch, tokens, heads, head}).transpose(1, 2),
                 y = operands_.make({batch, tokens, heads, head}).transpose(1, 2);
    const Tensor cos = tensor({tokens, head / 2}, DType::fp32),
                 sin = tensor({tokens, head / 2}, DType::fp32);
    take("rope", 2 * static_cast<double>(x.elements() * size()), 0,
         [&] { kernels_.rope(x, cos, sin, 0, 1, y); });
  }

  void cross_entropy() {
    const std::int64_t tokens =
        std::max<std::int64_t>(1, rows_ * args_.width * size() / args_.vocabulary / 4);
    const Tensor z = tensor({tokens, args_.vocabulary}, DType::fp32),
                 losses = tensor({tokens}, DType::fp32);
    const Tensor targets = Tensor::from(
        std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 7), {tokens}, device_);
    take("cross_entropy", 2 * 4 * static_cast<double>(z.elements()), 0,
         [&] { kernels_.cross_entropy_with_gradient(z, targets, -100, 1e-3, losses, z); });
  }

  void optimizer() {
    const std::int64_t n = rows_ * args_.width;
    const Tensor p = tensor({n}, DType::fp32), m = tensor({n}, DType::fp32),
                 v = tensor({n}, DType::fp32), g = tensor({n}, dtype_);
    const Tensor kept = dtype_ == DType::bf16 ? tensor({n}, dtype_) : Tensor(),
                 total = tensor({}, DType::fp32);
    const autograd::AdamWStep step{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .scale = 1};
    const autograd::AdamWUpdate update{.p = p,
                                       .g = g,
                                       .m = m,
                                       .v = v,
                                       .parameter = kept,
                                       .keep = 1,
                                       .step_size = 1e-4,
                                       .scale_v = 1};
    take("adamw", 28 * static_cast<double>(n), 0,
         [&] { kernels_.adamw(step, std::span(&update, 1)); });
    take("sum of squares", bytes_of(1), 0,
         [&] { kernels_.sum_of_squares(std::span(&g, 1), total); });
  }

  void product() {
    const std::int64_t n =
        std::max<std::int64_t>(32, std::min<std::int64_t>(8192, rows_ / 16 * 16));
    const Tensor a = operands_.make({n, n}), b = operands_.make({n, n}), c = tensor({n, n}, dtype_);
    const double side = static_cast<double>(n);
    take("matrix product", 0, 2 * side * side * side,
         [&] { kernels_.gemm({.b = autograd::Transpose::yes, .m = n, .n = n, .k = n}, a, b, c); });
  }

  void attention() {
    for (const std::int64_t sequence : args_.sequences)
      for (const std::int64_t head : args_.heads) attention(std::min(rows_, sequence), head);
  }
  void attention(std::int64_t tokens, std::int64_t head) {
    const std::int64_t heads = std::max<std::int64_t>(1, args_.width / head);
    const std::int64_t batch =
        std::max<std::int64_t>(1, std::min<std::int64_t>(16, rows_ / tokens));
    const auto make = [&] { return operands_.make({batch, tokens, heads, head}).transpose(1, 2); };
    const Tensor q = make(), k = make(), v = make(), y = make(), dy = make(), dq = make(),
                 dk = make(), dv = make();
    const Tensor log_sums = tensor({batch, heads, tokens}, DType::fp32);
    const double scores = static_cast<double>(batch * heads) * static_cast<double>(tokens) *
                          static_cast<double>(tokens + 1) / 2;
    const std::string shape = fmt::format(" T={} D={}", tokens, head);
    take("attention" + shape, 0, 4 * scores * static_cast<double>(head),
         [&] { kernels_.attention(q, k, v, y, log_sums); });
    take("attention backward" + shape, 0, 10 * scores * static_cast<double>(head),
         [&] { kernels_.attention_backward(q, k, v, y, log_sums, dy, dq, dk, dv); });
  }

  const KernelsArguments& args_;
  const std::function<void(const Row&)> take_;
  Device device_;
  const DeviceKernels& kernels_;
  DType dtype_;
  RandomOperands operands_;
  std::int64_t rows_;
};

Table empty_table() {
  Table table{{words("kernel", "kernel", 32), number("time (us)", "time_us", fixed(1), 10),
               only_in_json("bytes"), number("GB/s", "rate_gbps", fixed(1), 9),
               only_in_json("flops"), number("TFLOP/s", "tflops", fixed(2), 9),
               number("ratio", "ratio", fixed(0, 100, "%"), 7)}};
  table.indent = 0;
  return table;
}

// The rows are compared with the last copy or product before them.
class Limits {
 public:
  std::vector<Cell> cells_of(const Row& row) {
    const double rate = row.bytes / row.seconds, flops = row.flops / row.seconds;
    if (row.kernel == "copy") copy_ = rate;
    if (row.kernel == "matrix product") product_ = flops;
    if (row.bytes > 0)
      return {row.kernel, row.seconds * 1e6, row.bytes, rate / 1e9, Cell(), Cell(), rate / copy_};
    return {row.kernel, row.seconds * 1e6, Cell(),          Cell(),
            row.flops,  flops / 1e12,      flops / product_};
  }

 private:
  double copy_ = 0, product_ = 0;
};

void bench_kernels(const KernelsArguments& args) {
  const Device device = device_from(args.device, autograd::dtype_named(args.dtype));
  refuse_if(device == Device::cpu,
            "bench kernels measures the kernels of a GPU: choose --device cuda or emulated");
  take_device(device);
  // A kernel that hangs or crashes must not cost the rows before it: each is printed and written
  // as soon as it is known.
  Table table = empty_table();
  Limits limits;
  std::FILE* const out = file_beside(args.json);
  fmt::print(out, "{}, {}, tensors of {}\n\n{}", describe(device), args.dtype, args.size,
             table.head_line());
  const auto json = [&] {
    return table.json({{"device", args.device.name}, {"dtype", args.dtype}});
  };
  KernelsBench(args, device, [&](const Row& row) {
    table.rows.push_back(limits.cells_of(row));
    fmt::print(out, "{}", table.line_of(table.rows.back()));
    std::fflush(out);
    if (!args.json.empty() && !is_stdout(args.json)) write_json_file(args.json, json());
  }).measure();
  if (is_stdout(args.json)) write_json_file(args.json, json());
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench) {
  const auto [option, args] =
      add_command(bench, "kernels",
                  "Measure the kernels of a GPU, beside copies and matrix products", bench_kernels);
  add_device_option(option, args.device);
  add_dtype_option(option, args.dtype);
  option("--size SIZE", args.size, "Size of a tensor, larger than the GPU's cache");
  option("--width N", args.width, "Elements of a row", at_least_one("number"));
  option("--vocabulary N", args.vocabulary, "Width of the logits", at_least_one("token"));
  option("--sequence N,...", args.sequences, "Sequence lengths of attention",
         at_least_one("token"));
  option("--head N,...", args.heads, "Widths of a head of attention", at_least_one("element"));
  option("--rounds N", args.rounds, "Samples of each figure", at_least_one("sample"));
  option("--calls N", args.calls, "Calls per sample", at_least_one("call"));
  add_json_option(option, args.json);
}

}  // namespace ringside::cli

// exp, gemm and threads, which the ops use.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/time.h>

#include "autograd/kernels/exp.hpp"
#include "autograd/kernels/products/bf16_products.hpp"
#include "autograd/kernels/products/fp32_products.hpp"
#include "autograd/kernels/products/gemm.hpp"
#include "autograd/kernels/products/onednn.hpp"
#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

// Sets the number of threads for one test.
class Threads {
 public:
  explicit Threads(int n) : before_(threads()) { set_threads(n); }
  ~Threads() { set_threads(before_); }

 private:
  int before_;
};

// Sends all kinds of products of fp32 to one library for one test.
class MultiplyBy {
 public:
  explicit MultiplyBy(MatrixLibrary library) {
    for (const ProductKind& kind : product_kinds) multiply_by(kind, library);
  }
  ~MultiplyBy() {
    for (const ProductKind& kind : product_kinds) multiply_by(kind, MatrixLibrary::blas);
  }
};

template <class T>
double largest_error_in_ulps(T low, T high, int count) {
  double largest = 0;
  for (int i = 0; i <= count; ++i) {
    const T x = low + (high - low) * static_cast<T>(i) / static_cast<T>(count);
    const auto exact = std::exp(static_cast<long double>(x));
    const long double ulp =
        std::nextafter(static_cast<T>(exact), std::numeric_limits<T>::infinity()) -
        static_cast<T>(exact);
    largest = std::max(largest, static_cast<double>(std::abs(fast_exp(x) - exact) / ulp));
  }
  return largest;
}

// T is the type of C, A that of the operands.
template <class T, class A = T>
void check_gemm(std::int64_t m, std::int64_t n, std::int64_t k, Transpose ta, Transpose tb, T alpha,
                T beta) {
  const std::int64_t pad = 3, lda = (ta == Transpose::yes ? m : k) + pad,
                     ldb = (tb == Transpose::yes ? k : n) + pad, ldc = n + pad;
  const DType type = dtype_of<T>();
  const Tensor a = random_tensor({(ta == Transpose::yes ? k : m), lda}, "a", dtype_of<A>()),
               b = random_tensor({(tb == Transpose::yes ? n : k), ldb}, "b", dtype_of<A>());
  const Tensor c = random_tensor({m, ldc}, "c", type), before = c.clone();
  gemm(ta, tb, m, n, k, alpha, a.data<A>(), lda, b.data<A>(), ldb, beta, c.data<T>(), ldc);
  double largest = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < ldc; ++j) {
      double expected = before.data<T>()[i * ldc + j];
      if (j < n) {
        double total = 0;
        for (std::int64_t l = 0; l < k; ++l)
          total +=
              static_cast<double>(a.data<A>()[ta == Transpose::yes ? l * lda + i : i * lda + l]) *
              b.data<A>()[tb == Transpose::yes ? j * ldb + l : l * ldb + j];
        expected = alpha * total + (beta == 0 ? 0 : beta * expected);
      }
      largest = std::max(largest, std::abs(expected - c.data<T>()[i * ldc + j]));
    }
  }
  CHECK(largest < (type == DType::fp64 ? 1e-12 : 1e-4) * static_cast<double>(k + 1));
}

}  // namespace

TEST_CASE("fast_exp is within two units in the last place") {
  CHECK(largest_error_in_ulps<float>(-87.3f, 88.7f, 200000) < 2);
  CHECK(largest_error_in_ulps<float>(-1.0f, 1.0f, 200000) < 2);
  CHECK(largest_error_in_ulps<double>(-708.0, 709.7, 200000) < 2);
  CHECK(largest_error_in_ulps<double>(-1.0, 1.0, 200000) < 2);
}

TEST_CASE("fast_exp is exact at zero and right beyond its range") {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    const T infinity = std::numeric_limits<T>::infinity();
    CHECK(fast_exp(T(0)) == 1);
    CHECK(fast_exp(-T(0)) == 1);
    CHECK(fast_exp(-infinity) == 0);
    CHECK(fast_exp(infinity) == infinity);
    CHECK(fast_exp(T(-1e30)) == 0);
    CHECK(fast_exp(T(1e30)) == infinity);
    CHECK(std::isnan(fast_exp(std::numeric_limits<T>::quiet_NaN())));
    CHECK(sigmoid(T(-1e4)) == 0);
    CHECK(sigmoid(T(1e4)) == 1);
    CHECK(sigmoid(T(0)) == T(0.5));
  };
  check(float{});
  check(double{});
}

TEST_CASE("gemm multiplies bf16 matrices with fp32 sums, on any number of threads") {
  if (!has_bf16_products()) {
    MESSAGE("SKIPPED: ", why_no_bf16_products());
    return;
  }
  for (const int n : {1, 3}) {
    const Threads with(n);
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        check_gemm<float, Bf16>(1, 1, 1, ta, tb, 2, 1);
        check_gemm<float, Bf16>(1, 70, 300, ta, tb, 1, 0);
        check_gemm<float, Bf16>(17, 33, 9, ta, tb, 1.5f, 0.5f);
        check_gemm<float, Bf16>(200, 150, 129, ta, tb, 1, 1);
        check_gemm<float, Bf16>(3, 4, 0, ta, tb, 1, 0.5f);
      }
  }
}

TEST_CASE("oneDNN multiplies fp32 matrices of every form, on any number of threads") {
  if (!onednn().missing.empty()) {
    MESSAGE("SKIPPED: ", onednn().missing);
    return;
  }
  const MultiplyBy by(MatrixLibrary::onednn);
  for (const int n : {1, 3}) {
    const Threads with(n);
    for (const auto& [ta, tb, is_short] : product_kinds) {
      check_gemm<float>(1, 1, 1, ta, tb, 2, 1);
      check_gemm<float>(17, 33, 9, ta, tb, 1.5f, 0.5f);
      check_gemm<float>(200, 150, 129, ta, tb, 1, 1);
      check_gemm<float>(3, 4, 0, ta, tb, 1, 0.5f);
    }
  }
}

TEST_CASE("no signal handler runs on the heap while oneDNN multiplies") {
  if (!onednn().missing.empty()) {
    MESSAGE("SKIPPED: ", onednn().missing);
    return;
  }
  static volatile std::sig_atomic_t handled = 0, elsewhere = 0;
  static const pthread_t here = ::pthread_self();  // the signal may also reach a thread of the pool
  static const char* const stack = static_cast<char*>(__builtin_frame_address(0));
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {
    handled = handled + 1;
    const auto distance = stack - static_cast<char*>(__builtin_frame_address(0));
    if (::pthread_equal(::pthread_self(), here) && (distance < 0 || distance > 1'000'000))
      elsewhere = elsewhere + 1;
  };
  action.sa_flags = SA_RESTART;
  REQUIRE(::sigaction(SIGALRM, &action, &before) == 0);
  const auto every = [](suseconds_t microseconds) {
    const itimerval timer{{0, microseconds}, {0, microseconds}};
    REQUIRE(::setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  };
  const std::int64_t m = 344, n = 32, k = 96;
  const auto multiply = [&]<class T>(T) {
    const Tensor a = random_tensor({m, k}, "a", dtype_of<T>()),
                 b = random_tensor({k, n}, "b", dtype_of<T>()), c = Tensor::zeros({m, n});
    handled = 0;
    every(100);
    while (handled < 500)
      gemm(Transpose::no, Transpose::no, m, n, k, 1.0f, a.data<T>(), k, b.data<T>(), n, 0.0f,
           c.data<float>(), n);
    every(0);
  };
  const MultiplyBy by(MatrixLibrary::onednn);
  const Threads one(1);
  multiply(float{});
  if (has_bf16_products()) multiply(Bf16{});
  CHECK(elsewhere == 0);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST_CASE("each kind of fp32 product goes to the library that was chosen for it") {
  for (const auto& [ta, tb, is_short] : product_kinds) {
    const ProductKind kind{ta, tb, is_short};
    CAPTURE(name_of(kind));
    const std::int64_t m = is_short ? 17 : 150, n = is_short ? 30 : 130, k = 2000;
    CHECK(kind_of(ta, tb, m, n, k) == kind);
    const Tensor a = random_tensor({m * k}, "a", DType::fp32),
                 b = random_tensor({k * n}, "b", DType::fp32);
    const std::int64_t lda = ta == Transpose::yes ? m : k, ldb = tb == Transpose::yes ? k : n;
    std::vector<std::vector<float>> products;
    for (const MatrixLibrary library : {MatrixLibrary::blas, MatrixLibrary::onednn}) {
      std::vector<float> expected(static_cast<std::size_t>(m * n)), seen(expected);
      if (library == MatrixLibrary::onednn && !onednn().missing.empty()) continue;
      fp32_product(library, ta, tb, m, n, k, 1, a.data<float>(), lda, b.data<float>(), ldb, 0,
                   expected.data(), n);
      multiply_by(kind, library);
      const Threads one(1);
      gemm(ta, tb, m, n, k, 1.0f, a.data<float>(), lda, b.data<float>(), ldb, 0.0f, seen.data(), n);
      multiply_by(kind, MatrixLibrary::blas);
      CHECK(seen == expected);
      products.push_back(seen);
    }
    // The two divide such long sums differently, so the comparison above can fail.
    if (products.size() == 2) CHECK(products[0] != products[1]);
  }
}

TEST_CASE("slices of a long product for several threads are multiplied as a long one") {
  constexpr auto no = Transpose::no;
  const ProductKind is_long{no, no, false}, is_short{no, no, true};
  CHECK(kind_of(no, no, 100, 200, 100) == is_long);  // 4 MFLOP
  CHECK(kind_of(no, no, 100, 200, 99) == is_short);
  if (!onednn().missing.empty()) {
    MESSAGE("SKIPPED: ", onednn().missing);
    return;
  }
  const Threads three(3);
  const std::int64_t m = 96, n = 30, k = 2000;  // 11.5 MFLOP, and 3.8 in each slice
  const Tensor a = random_tensor({m, k}, "a", DType::fp32),
               b = random_tensor({k, n}, "b", DType::fp32);
  const auto product_with = [&](MatrixLibrary for_long, MatrixLibrary for_short) {
    multiply_by(is_long, for_long), multiply_by(is_short, for_short);
    std::vector<float> c(static_cast<std::size_t>(m * n));
    gemm(no, no, m, n, k, 1.0f, a.data<float>(), k, b.data<float>(), n, 0.0f, c.data(), n);
    multiply_by(is_long, MatrixLibrary::blas), multiply_by(is_short, MatrixLibrary::blas);
    return c;
  };
  const auto by_onednn = product_with(MatrixLibrary::onednn, MatrixLibrary::onednn);
  CHECK(product_with(MatrixLibrary::onednn, MatrixLibrary::blas) == by_onednn);
  CHECK(product_with(MatrixLibrary::blas, MatrixLibrary::onednn) != by_onednn);
}

TEST_CASE("products of two transposed matrices, and all without oneDNN, go to the BLAS") {
  CHECK(library_for(kind_of(Transpose::yes, Transpose::yes, 500, 500, 500)) == MatrixLibrary::blas);
  const ProductKind kind = product_kinds[0];
  const bool there = onednn().missing.empty();
  multiply_by(kind, MatrixLibrary::onednn);
  CHECK(library_for(kind) == (there ? MatrixLibrary::onednn : MatrixLibrary::blas));
  multiply_by(kind, MatrixLibrary::blas);
  CHECK(library_for(kind) == MatrixLibrary::blas);
}

TEST_CASE("gemm handles every transpose, padded rows, alpha and beta") {
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      check_gemm<double>(5, 7, 3, ta, tb, 1, 0);
      check_gemm<double>(1, 1, 1, ta, tb, 2, 1);
      check_gemm<double>(33, 17, 40, ta, tb, -0.5, 2);
      check_gemm<float>(17, 33, 9, ta, tb, 1.5f, 0.5f);
      check_gemm<double>(3, 4, 0, ta, tb, 1, 0.5);
      check_gemm<double>(0, 4, 3, ta, tb, 1, 0);
    }
  }
}

TEST_CASE("gemm in slices equals gemm in one piece, for tall and wide results") {
  for (const int n : {2, 3}) {
    const Threads scope(n);
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        check_gemm<float>(250, 90, 120, ta, tb, 1, 0);
        check_gemm<double>(90, 250, 120, ta, tb, 1, 1);
      }
    }
  }
}

TEST_CASE("gemm with beta 0 overwrites C without reading it") {
  const std::vector<double> one = {1};
  double c = std::nan("");
  gemm(Transpose::no, Transpose::no, 1, 1, 1, 1.0, one.data(), 1, one.data(), 1, 0.0, &c, 1);
  CHECK(c == 1);
}

TEST_CASE("parallel_for covers each index once with any number of threads") {
  for (const int n : {1, 2, 3, 8}) {
    const Threads scope(n);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      CHECK(
          std::all_of(visits.begin(), visits.end(), [](const auto& visit) { return visit == 1; }));
    }
  }
}

TEST_CASE("with one thread a loop runs in one piece on the calling thread") {
  int calls = 0;
  std::thread::id where;
  parallel_for(1 << 20, 1, [&](std::int64_t begin, std::int64_t end) {
    ++calls, where = std::this_thread::get_id();
    CHECK((begin == 0 && end == 1 << 20));
  });
  CHECK(calls == 1);
  CHECK(where == std::this_thread::get_id());
}

TEST_CASE("with one thread neither the loops nor the BLAS start another thread") {
  const auto threads_of_process = [] {
    const std::filesystem::path tasks = "/proc/self/task";
    return std::filesystem::exists(tasks)
               ? std::distance(std::filesystem::directory_iterator(tasks), {})
               : 0;
  };
  std::ptrdiff_t before = 0, after = 0;
  std::thread([&] {  // a new thread, as a rank may be one
    const Tensor a = random_tensor({300, 300}, "a", DType::fp32), c = Tensor::empty({300, 300});
    before = threads_of_process();
    gemm(Transpose::no, Transpose::no, 300, 300, 300, 1.0f, a.data<float>(), 300, a.data<float>(),
         300, 0.0f, c.data<float>(), 300);
    add(c, c);
    after = threads_of_process();
  })
      .join();
  CHECK(after == before);
}

TEST_CASE("a loop within a loop runs serially, and exceptions reach the caller") {
  const Threads scope(2);
  std::atomic<int> inner{0};
  parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    parallel_for(100, 1, [&](std::int64_t, std::int64_t) { ++inner; });
  });
  CHECK(inner <= 2);
  CHECK_THROWS_WITH_AS(
      parallel_for(
          2, 1, [](std::int64_t, std::int64_t end) { require(end < 2, "the last piece fails"); }),
      "the last piece fails", Error);
}

TEST_CASE("each thread has its own number of threads") {
  const Threads scope(3);
  int elsewhere = 0;
  std::thread([&] { elsewhere = threads(); }).join();
  CHECK(elsewhere == 1);
  CHECK(threads() == 3);
  CHECK_THROWS_WITH_AS(set_threads(0), "set_threads: expected at least 1, got 0", Error);
}

namespace {

// The gradients of a small model that contains every threaded op, with `n` threads.
std::vector<double> gradients_with_threads(int n) {
  const Threads scope(n);
  const std::int64_t B = 2, T = 96, H = 4, D = 16, width = H * D, vocabulary = 130;
  std::vector<std::int32_t> tokens;
  for (std::int64_t t = 0; t < B * T; ++t)
    tokens.push_back(static_cast<std::int32_t>(t * 7 % vocabulary));
  const Tensor ids = Tensor::from(tokens, {B, T});
  std::vector<Tensor> w;
  for (const Shape& shape : {Shape{vocabulary, width}, Shape{width}, Shape{width, width},
                             Shape{4 * width, width}, Shape{vocabulary, 4 * width}})
    w.push_back(
        random_tensor(shape, fmt::format("w{}", w.size()), DType::fp32).set_requires_grad(true));
  const RopeTable table = rope_table(T, D);
  const Tensor x = embedding(ids, w[0]);
  const Tensor h = linear(rms_norm(x, w[1]), scale(w[2], 0.1));
  const Tensor q = rope(h.reshape({B, T, H, D}).transpose(1, 2), table);
  const Tensor y = causal_attention(q, q, q).transpose(1, 2).reshape({B, T, width});
  const Tensor z = linear(scale(add_rms_norm(x, y, w[1]).normed, 0.1), w[3]);
  backward(cross_entropy(linear(scale(swiglu(z, z), 0.1), w[4]), ids));
  std::vector<double> all;
  for (const Tensor& p : w)
    for (const double g : to_vector(p.grad())) all.push_back(g);
  return all;
}

}  // namespace

TEST_CASE("equal numbers of threads give equal bits, other numbers give nearly equal results") {
  const std::vector<double> one = gradients_with_threads(1), two = gradients_with_threads(2);
  CHECK(one == gradients_with_threads(1));
  CHECK(two == gradients_with_threads(2));
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    largest = std::max(largest, std::abs(one[i])),
    difference = std::max(difference, std::abs(one[i] - two[i]));
  CHECK(largest > 0);
  CHECK(difference < 1e-5 * largest);
}

// Every algorithm of the catalogue over every transport: worlds of 1 to 7, awkward counts, tiny
// slices, in place and out of place.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/ranges.h>

#include "base/random.hpp"
#include "collectives/half.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

using Numbers = std::vector<std::int32_t>;

std::int32_t number(int rank, std::size_t i) {
  return static_cast<std::int32_t>(random_below(1000, 11, rank, i));
}

Numbers numbers(int rank, std::size_t count) {
  Numbers values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = number(rank, i);
  return values;
}

Numbers sums(int size, std::size_t count) {
  Numbers values(count, 0);
  for (int r = 0; r < size; ++r)
    for (std::size_t i = 0; i < count; ++i) values[i] += number(r, i);
  return values;
}

Numbers part(const Numbers& whole, std::size_t begin, std::size_t length) {
  const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(length)};
}

// Calls of one algorithm on `count` elements, against the plain result.
class Trial {
 public:
  Trial(ProcessGroup& group, const Algorithm& algorithm, std::size_t count)
      : group_(group),
        algorithm_(algorithm),
        count_(count),
        input_(numbers(group.rank(), count)),
        begin_(group.block_begin(count, group.rank())),
        length_(group.block_size(count, group.rank())) {}

  void run() {
    group_.set_algorithms(
        AlgorithmSelection(fmt::format("{}={}", name_of(algorithm_.collective), algorithm_.name)));
    if (!has_root(algorithm_.collective)) return run_one(0);
    for (int root = 0; root < group_.size(); ++root) run_one(root);
  }

 private:
  void run_one(int root) {
    switch (algorithm_.collective) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::all_gather:
        return all_gather();
      case Collective::broadcast:
        return broadcast(root);
      case Collective::reduce:
        return reduce(root);
      case Collective::gather:
        return gather(root);
      case Collective::scatter:
        return scatter(root);
      case Collective::all_to_all:
        return all_to_all();
      case Collective::barrier:
        return group_.barrier();
      case Collective::point_to_point:
        return;
    }
  }

  void all_reduce() {
    Numbers in_place = input_, output(count_, 77);
    group_.all_reduce(std::span(in_place));
    check(in_place, sums(group_.size(), count_), "in place");
    group_.all_reduce(std::span(input_), std::span(output));
    check(output, sums(group_.size(), count_), "out of place");
  }

  void reduce_scatter() {
    Numbers output(length_, 77), both = input_;
    const Numbers wanted = part(sums(group_.size(), count_), begin_, length_);
    group_.reduce_scatter(std::span(input_), std::span(output));
    check(output, wanted, "out of place");
    group_.reduce_scatter(std::span(both), std::span(both).subspan(begin_, length_));
    check(part(both, begin_, length_), wanted, "in place");
  }

  void all_gather() {
    const Numbers whole = numbers(99, count_);
    const Numbers mine = part(whole, begin_, length_);
    Numbers output(count_, 77), both(count_, 77);
    group_.all_gather(std::span(mine), std::span(output));
    check(output, whole, "out of place");
    std::copy(mine.begin(), mine.end(), both.begin() + static_cast<std::ptrdiff_t>(begin_));
    group_.all_gather(std::span(both).subspan(begin_, length_), std::span(both));
    check(both, whole, "in place");
  }

  void broadcast(int root) {
    Numbers data = input_;
    group_.broadcast(std::span(data), root);
    check(data, numbers(root, count_), "");
  }

  void reduce(int root) {
    const bool is_root = group_.rank() == root;
    Numbers output(is_root ? count_ : 0, 77), in_place = input_;
    group_.reduce(std::span(input_), std::span(output), root);
    if (is_root) check(output, sums(group_.size(), count_), "out of place");
    group_.reduce(std::span(in_place), std::span(in_place), root);
    check(in_place, is_root ? sums(group_.size(), count_) : input_, "in place");
  }

  void gather(int root) {
    const bool is_root = group_.rank() == root;
    const std::size_t whole_length = count_ * group_.size(), begin = count_ * group_.rank();
    const Numbers whole = numbers(99, whole_length);
    const Numbers mine = part(whole, begin, count_);
    Numbers output(is_root ? whole_length : 0, 77), both = whole;
    group_.gather(std::span(mine), std::span(output), root);
    if (is_root) check(output, whole, "out of place");
    group_.gather(std::span(both).subspan(begin, count_), std::span(both), root);
    check(both, whole, "in place");
  }

  void scatter(int root) {
    const bool is_root = group_.rank() == root;
    const std::size_t whole_length = count_ * group_.size(), begin = count_ * group_.rank();
    const Numbers input = is_root ? numbers(root, whole_length) : Numbers();
    Numbers output(count_, 77), both = numbers(group_.rank(), whole_length);
    const Numbers wanted = part(numbers(root, whole_length), begin, count_);
    group_.scatter(std::span(input), std::span(output), root);
    check(output, wanted, "out of place");
    group_.scatter(std::span(both), std::span(both).subspan(begin, count_), root);
    check(part(both, begin, count_), wanted, "in place");
  }

  void all_to_all() {
    const std::size_t block = count_, whole = block * group_.size();
    const Numbers input = numbers(group_.rank(), whole);
    Numbers wanted, output(whole, 77), in_place = input;
    for (int r = 0; r < group_.size(); ++r) {
      const Numbers theirs = part(numbers(r, whole), group_.rank() * block, block);
      wanted.insert(wanted.end(), theirs.begin(), theirs.end());
    }
    group_.all_to_all(std::span(input), std::span(output));
    check(output, wanted, "out of place");
    group_.all_to_all(std::span(in_place), std::span(in_place));
    check(in_place, wanted, "in place");
  }

  void check(const Numbers& seen, const Numbers& wanted, const char* how) const {
    require(input_ == numbers(group_.rank(), count_), "{} of {} has changed its input",
            algorithm_.title(), count_);
    require(seen == wanted, "{} of {} {}: {} instead of {}", algorithm_.title(), count_, how,
            seen.size() < 20 ? fmt::format("{}", seen) : "other numbers",
            wanted.size() < 20 ? fmt::format("{}", wanted) : "the right ones");
  }

  ProcessGroup& group_;
  const Algorithm& algorithm_;
  const std::size_t count_;
  const Numbers input_;
  const std::size_t begin_, length_;
};

void all_algorithms_agree(ProcessGroup& group) {
  const auto p = static_cast<std::size_t>(group.size());
  for (const Algorithm& algorithm : all_algorithms())
    for (const std::size_t count :
         {std::size_t(0), std::size_t(1), p - 1, p, p + 1, std::size_t(1003)})
      Trial(group, algorithm, count).run();
}

GroupOptions slices(std::size_t bytes, int per_segment) {
  GroupOptions options;
  options.executor.slice_bytes = bytes;
  options.executor.slices_per_segment = per_segment;
  options.executor.timeout = Seconds(30);
  return options;
}

// Every addition rounds; -0 and +0 are among the numbers.
template <class T>
std::vector<T> rough_numbers(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double x = i % 13 == 0 ? (rank % 2 == 0 ? 0.0 : -0.0) : random_normal(21, rank, i);
    values[i] = T(static_cast<float>(x));
  }
  return values;
}

template <class T>
void all_ranks_hold_the_same_bits(ProcessGroup& group) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    group.set_algorithms(AlgorithmSelection(fmt::format("all_reduce={}", algorithm.name)));
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      std::vector<T> x = rough_numbers<T>(group.rank(), 301), first;
      group.all_reduce(std::span(x), op);
      first = x;
      group.broadcast(std::span(first), 0);
      require(std::memcmp(x.data(), first.data(), x.size() * sizeof(T)) == 0,
              "{} {} of {}: other bits than rank 0's", algorithm.title(), name_of(op),
              name_of(data_type_of<T>()));
    }
  }
}

// Numbers whose sums are exact, or overflow, in any order: their means do not depend on the
// algorithm. Three of them are the smallest of the type and two whose sum is too large for it.
template <class T>
struct Means {
  using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
  static T of(double x) { return T(static_cast<Wide>(x)); }

  static T number(int rank, std::size_t i) {
    const T smallest = std::bit_cast<T>(static_cast<Bits>(1));
    const T large = of(std::is_same_v<T, Fp16>   ? 60000
                       : std::is_same_v<T, Bf16> ? 0x1.8p127
                                                 : 0.75 * double(std::numeric_limits<Wide>::max()));
    if (i % 8 == 5) return smallest;
    if (i % 8 >= 6)
      return of((i % 8 == 6 ? 1 : -1) * static_cast<double>(static_cast<Wide>(large)));
    return of(rank * rank + (rank == 0 ? static_cast<double>(i % 8) : 0));
  }

  static T mean(int size, std::size_t i) {
    if (i % 8 >= 6) return of(i % 8 == 6 ? INFINITY : -INFINITY);
    Wide sum = 0;
    for (int r = 0; r < size; ++r) sum += static_cast<Wide>(number(r, i));
    return T(sum / static_cast<Wide>(size));
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
};

template <class T>
void means_are_sums_divided_once(ProcessGroup& group) {
  constexpr std::size_t count = 101;
  std::vector<T> input(count), wanted(count);
  for (std::size_t i = 0; i < count; ++i) {
    input[i] = Means<T>::number(group.rank(), i);
    wanted[i] = Means<T>::mean(group.size(), i);
  }
  const std::size_t begin = group.block_begin(count, group.rank());
  const std::size_t length = group.block_size(count, group.rank());
  for (const Algorithm& algorithm : all_algorithms()) {
    const bool scatters = algorithm.collective == Collective::reduce_scatter;
    const bool has_root = algorithm.collective == Collective::reduce;
    if (!scatters && !has_root && algorithm.collective != Collective::all_reduce) continue;
    group.set_algorithms(
        AlgorithmSelection(fmt::format("{}={}", name_of(algorithm.collective), algorithm.name)));
    std::vector<T> output(scatters ? length : count);
    if (scatters)
      group.reduce_scatter(std::span(input), std::span(output), ReduceOp::avg);
    else if (has_root)
      group.reduce(std::span(input), std::span(output), group.size() - 1, ReduceOp::avg);
    else
      group.all_reduce(std::span(input), std::span(output), ReduceOp::avg);
    if (has_root && group.rank() != group.size() - 1) continue;
    for (std::size_t i = 0; i < output.size(); ++i) {
      const T& mean = wanted[i + (scatters ? begin : 0)];
      require(std::memcmp(&output[i], &mean, sizeof mean) == 0,
              "{}: element {} of {} is {} instead of {}", algorithm.title(), i,
              name_of(data_type_of<T>()), static_cast<double>(output[i]),
              static_cast<double>(mean));
    }
  }
}

// Compares with the sum in double precision. `unit` is half of the type's epsilon.
template <class T>
void sums_are_near(ProcessGroup& group, double unit) {
  std::vector<T> x = rough_numbers<T>(group.rank(), 2000);
  group.all_reduce(std::span(x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    double exact = 0, magnitude = 0;
    for (int r = 0; r < group.size(); ++r) {
      const auto theirs = static_cast<double>(static_cast<float>(rough_numbers<T>(r, i + 1)[i]));
      exact += theirs;
      magnitude += std::abs(theirs);
    }
    const double error = std::abs(static_cast<double>(static_cast<float>(x[i])) - exact);
    require(error <= (group.size() - 1) * unit * magnitude, "element {} is {} away from {}", i,
            error, exact);
  }
}

}  // namespace

TEST_CASE("every algorithm gives the plain result in worlds of 1 to 7") {
  for (int size = 1; size <= 7; ++size) {
    CAPTURE(size);
    on_every_transport(size, all_algorithms_agree, slices(256 * 1024, 4));
  }
}

TEST_CASE("every algorithm gives the plain result with tiny slices") {
  for (int size = 2; size <= 7; ++size) {
    CAPTURE(size);
    on_every_transport(size, all_algorithms_agree, slices(128, 2));
  }
}

TEST_CASE("all ranks hold the same bits, for every algorithm, op and floating-point type") {
  for (const int size : {3, 4, 7}) {
    CAPTURE(size);
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          all_ranks_hold_the_same_bits<float>(group);
          all_ranks_hold_the_same_bits<double>(group);
          all_ranks_hold_the_same_bits<Fp16>(group);
          all_ranks_hold_the_same_bits<Bf16>(group);
        },
        slices(256, 2));
  }
}

TEST_CASE("a mean is the sum of all ranks divided once, and infinite where the sum overflows") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    on_every_transport(
        size,
        [](ProcessGroup& group) {
          means_are_sums_divided_once<float>(group);
          means_are_sums_divided_once<double>(group);
          means_are_sums_divided_once<Fp16>(group);
          means_are_sums_divided_once<Bf16>(group);
        },
        slices(256, 2));
  }
}

TEST_CASE("a sum over p ranks is rounded p-1 times at most") {
  for (const int size : {2, 5})
    run_threads(size, [](ProcessGroup& group) {
      sums_are_near<Fp16>(group, 0x1p-11);
      sums_are_near<Bf16>(group, 0x1p-8);
      sums_are_near<float>(group, 0x1p-24);
    });
}

TEST_CASE("RINGSIDE_ALGORITHM selects the algorithm, and ranks with different ones say so") {
  ::setenv("RINGSIDE_ALGORITHM", "all_reduce=two_shot", 1);
  const GroupOptions forced = group_options_from_environment();
  ::unsetenv("RINGSIDE_ALGORITHM");
  CHECK(forced.algorithms.choose(Collective::all_reduce, 1, DataType::fp32, 2).name == "two_shot");
  const auto outcomes = run_tcp(
      2,
      [](ProcessGroup& group) {
        if (group.rank() == 1) group.set_algorithms(AlgorithmSelection("all_reduce=naive"));
        std::vector<float> x(8);
        group.all_reduce(std::span(x));
      },
      forced);
  for (const auto& text : outcomes) {
    CAPTURE(text);
    CHECK(text.find("all_reduce of 8 fp32 (sum, two_shot)") != std::string::npos);
    CHECK(text.find("all_reduce of 8 fp32 (sum, naive)") != std::string::npos);
  }
}

TEST_CASE("gather, scatter and all-to-all refuse spans that are not equal blocks") {
  run_threads(3, [](ProcessGroup& group) {
    const Numbers mine = {group.rank(), 10 * group.rank()};
    Numbers all(6), block(2), one(1);
    group.gather(std::span(mine), std::span(all), 1);
    if (group.rank() == 1) require(all == Numbers{0, 0, 1, 10, 2, 20}, "gathered {}", all);
    group.scatter(std::span(all), std::span(block), 1);
    require(block == mine, "scattered {}", block);
    const auto text_of = [](auto call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        return error.what();
      }
      return "no error";
    };
    const auto uneven =
        text_of([&] { group.all_to_all(std::span(all).first(5), std::span(all).first(5)); });
    require(
        uneven ==
            "all_to_all: 5 elements cannot be divided into 3 blocks of equal length, one for each "
            "rank",
        "{}", uneven);
    const auto root = text_of([&] { group.gather(std::span(mine), std::span(all), 3); });
    require(root == "gather: the root must be one of the ranks 0 to 2, not 3", "{}", root);
    if (group.rank() == 1) {
      const auto length = text_of([&] { group.gather(std::span(mine), std::span(one), 1); });
      require(length == "gather: expected a span of 6 elements, got 1", "{}", length);
    }
    group.barrier();
  });
}

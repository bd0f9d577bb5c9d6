#include "collectives/execution/announcing_executor.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/execution/reduce.hpp"

namespace ringside::collectives {
namespace {

bool is_one_shot(const Call& call) {
  static const std::uint8_t one_shot =
      number_of(find_algorithm(Collective::all_reduce, "one_shot"));
  return call.collective == Collective::all_reduce && call.algorithm == one_shot;
}

void copy(const std::byte* from, std::span<std::byte> to) {
  if (from != to.data() && !to.empty()) std::memcpy(to.data(), from, to.size());
}

}  // namespace

// Some elements of each chunk: from `begin` on, `length` where the chunk has so many.
struct AnnouncingExecutor::Segment {
  const Task& task;
  std::size_t begin, length;
  int number;

  std::span<const std::byte> input(int chunk) const {
    return in(task.buffers.input, task.buffers.given, chunk);
  }
  std::span<std::byte> output(int chunk) const {
    return in(task.buffers.output, task.buffers.kept, chunk);
  }
  template <class Byte>
  std::span<Byte> in(Byte* buffer, ChunkRange held, int chunk) const {
    const std::size_t element = size_of(task.call.type), in_chunk = task.chunks.size(chunk),
                      from = std::min(begin, in_chunk), to = std::min(begin + length, in_chunk),
                      at = task.chunks.begin(chunk) - task.chunks.begin(held) + from;
    return {buffer + at * element, (to - from) * element};
  }
};

AnnouncingExecutor::AnnouncingExecutor(Transport& transport, const ExecutorOptions& options)
    : Executor(transport),
      announces_(options.announces && size() > 1 && transport.announced_bytes() > 0),
      slice_bytes_(options.slice_bytes),
      shown_(static_cast<std::size_t>(size())),
      seen_(static_cast<std::size_t>(size())) {}

bool AnnouncingExecutor::takes(const Task& task) const {
  if (!announces_ || task.call.count == 0 || task.call.unequal) return false;
  const Algorithm* const algorithm = algorithm_numbered(task.call.algorithm);
  return algorithm != nullptr && algorithm->direct;
}

void AnnouncingExecutor::run(const Task& task) {
  const Collective collective = task.call.collective;
  const bool at_once = is_one_shot(task.call);  // then there is one chunk
  const std::size_t longest = at_once ? task.call.count : task.chunks.size(0),
                    most = elements_at_once(task.call);
  int number = 0;
  for (std::size_t begin = 0; begin < longest; begin += most) {
    const Segment segment{task, begin, std::min(most, longest - begin), number++};
    if (at_once) {
      all_reduce_at_once(segment);
    } else if (collective == Collective::all_to_all) {
      all_to_all(segment);
    } else {
      if (collective != Collective::all_gather) reduce_scatter(segment);
      if (collective != Collective::reduce_scatter) all_gather(segment);
    }
  }
}

std::size_t AnnouncingExecutor::elements_at_once(const Call& call) const {
  std::size_t most = transport_.announced_bytes();
  if (!is_one_shot(call)) most = most / static_cast<std::size_t>(size()) / 128 * 128;
  if (slice_bytes_ > 0) most = std::min(most, slice_bytes_);
  return std::max<std::size_t>(1, most / size_of(call.type));
}

template <class Payload, class StepOf>
void AnnouncingExecutor::show(const Segment& segment, std::uint32_t slice, const StepOf& step_of,
                              const Payload& payload) {
  MessageHeader header = this->header(segment.task, segment.number, segment.length);
  header.slice = slice;
  for (int r = 0; r < size(); ++r)
    shown_[r] = {static_cast<std::uint32_t>(step_of(rank(), r)), payload(r)};
  transport_.announce(header, shown_);
  for (int from = 0; from < size(); ++from) {
    if (from == rank()) continue;
    header.step = static_cast<std::uint32_t>(step_of(from, rank()));
    transport_.post_receive(from, header, {});
    seen_[from] = transport_.wait(Deadline::never())->payload.data();
  }
}

void AnnouncingExecutor::reduce_scatter(const Segment& segment) {
  show(
      segment, MessageHeader::to_each,
      [&](int from, int to) { return wrap(to - from, size()) - 1; },
      [&](int r) { return segment.input(r); });
  add_up(segment.task.call, segment.input(rank()).data(), segment.output(rank()), rank(), -1);
}

void AnnouncingExecutor::all_gather(const Segment& segment) {
  const bool second = segment.task.call.collective == Collective::all_reduce;
  const std::span<std::byte> own = segment.output(rank());
  if (!second) copy(segment.input(rank()).data(), own);
  show(
      segment, MessageHeader::to_everybody,
      [&](int from, int to) { return wrap(to - from, size()) - 1 + (second ? size() - 1 : 0); },
      [&](int) { return own; });
  for (int s = 1; s < size(); ++s) {
    const int from = wrap(rank() - s, size());
    copy(seen_[from], segment.output(from));
  }
}

void AnnouncingExecutor::all_to_all(const Segment& segment) {
  show(
      segment, MessageHeader::to_each, [&](int from, int to) { return wrap(from + to, size()); },
      [&](int r) { return segment.input(r); });
  for (int r = 0; r < size(); ++r)
    copy(r == rank() ? segment.input(r).data() : seen_[r], segment.output(r));
}

void AnnouncingExecutor::all_reduce_at_once(const Segment& segment) {
  const Task& task = segment.task;
  const std::size_t element = size_of(task.call.type), at = segment.begin * element,
                    bytes = segment.length * element;
  const std::span<const std::byte> own(task.buffers.input + at, bytes);
  show(
      segment, MessageHeader::to_everybody, [](int from, int to) { return from + to; },
      [&](int) { return own; });
  add_up(task.call, own.data(), {task.buffers.output + at, bytes}, 0, 1);
}

void AnnouncingExecutor::add_up(const Call& call, const std::byte* own, std::span<std::byte> sum,
                                int first, int step) {
  constexpr std::size_t block_bytes = 8 * 1024;
  alignas(64) std::byte kept[block_bytes];  // of the own input, which the sum may overwrite
  for (std::size_t begin = 0; begin < sum.size(); begin += block_bytes) {
    const std::size_t bytes = std::min(block_bytes, sum.size() - begin);
    std::byte* const into = sum.data() + begin;
    const bool is_overwritten = own == sum.data() && first != rank();
    if (is_overwritten) std::memcpy(kept, own + begin, bytes);
    const auto term = [&](int r) {
      return r != rank() ? seen_[r] + begin : is_overwritten ? kept : own + begin;
    };
    const std::byte* so_far = term(first);
    for (int i = 1, r = first; i < size(); ++i) {
      r += step;
      if (r < 0) r += size();
      combine(call.type, call.reduce, into, so_far, term(r), bytes / size_of(call.type));
      so_far = into;
    }
  }
}

}  // namespace ringside::collectives

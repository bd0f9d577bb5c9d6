// The pipelined executor: all steps under way at once, as far as the data allows.
//
// A chunk travels in SLICES, and a slice is one message. While slice 1 of a chunk is on its way,
// slice 0 is added to this rank's data and sent on. Long chunks are divided into SEGMENTS of a few
// slices, and the whole schedule runs once for each segment. So a slice that was just added is
// still in cache when it is sent, and a chunk that only passes through a rank needs scratch memory
// for one segment, however long the buffer is:
//
//     chunk 2:  | slice 0  slice 1  slice 2  slice 3 | slice 4  slice 5  slice 6  slice 7 | slice 8
//               '---------- segment 0 ---------------'----------- segment 1 --------------'---- ...
//
// Sends go out in the order (segment, step, slice), and receives are taken in the same order.
// Nothing else is ordered: sends and receives each run ahead as far as the data allows
// (data_flow.hpp).
//
// Calls in which nothing is forwarded take a shorter way where the transport has announcements
// (announcing_executor.hpp).
#include <algorithm>
#include <climits>
#include <compare>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/execution/announcing_executor.hpp"
#include "collectives/execution/data_flow.hpp"
#include "collectives/execution/executor.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/execution/reduce.hpp"

namespace ringside::collectives {

// Memory of an executor that its calls use one after the other, so that none allocates.
struct PipelineMemory {
  explicit PipelineMemory(int window) : packed(static_cast<std::size_t>(window) + 1) {}

  std::vector<std::byte> scratch;  // chunks that only pass through this rank
  std::vector<std::span<const std::byte>> input_parts;
  std::vector<std::span<std::byte>> result_parts;
  std::vector<std::vector<std::byte>> packed;  // slices of several parts that are under way, and
                                               // one from this rank to itself
};

namespace {

// One slice of one step of one segment. The order of cursors is the order in which slices are sent,
// and received.
struct Cursor {
  int segment = 0, step = 0, slice = 0;
  auto operator<=>(const Cursor&) const = default;
};

// How a task's chunks are divided into slices and segments.
struct Slicing {
  Slicing(const Task& task, const DataFlow& flow, std::size_t slice_bytes, int slices_per_segment)
      : element(size_of(task.call.type)),
        slice_elements(std::max<std::size_t>(1, slice_bytes / element)) {
    int longest = 1;  // slices in a message
    for (const Step& step : task.schedule.steps) {
      if (step.send) longest = std::max(longest, slices_of(task.extent(*step.send)));
      if (step.receive) longest = std::max(longest, slices_of(task.extent(*step.receive)));
    }
    // Ranks may slice a message of several chunks differently: then everything is one segment.
    segment_slices = flow.single_chunks ? std::min(slices_per_segment, longest) : longest;
    segments = task.schedule.steps.empty() ? 0 : (longest + segment_slices - 1) / segment_slices;
  }

  int slices_of(const Task::Extent& extent) const {
    const std::size_t slices = (extent.elements() + slice_elements - 1) / slice_elements;
    return std::max<int>(1, static_cast<int>(slices));
  }
  std::size_t bytes_of(const Task::Extent& extent, int slice) const {
    return std::min(slice_elements, extent.elements() - slice * slice_elements) * element;
  }
  // Where a slice lies in a buffer that holds the chunks of `within`: a part in each piece of its
  // range that it spans.
  template <class Byte>
  void find_parts(const Task::Extent& extent, int slice, Byte* buffer, ChunkRange within,
                  std::vector<std::span<Byte>>& parts) const {
    parts.clear();
    const auto& [chunks, range] = extent;
    std::size_t skipped = slice * slice_elements, wanted = bytes_of(extent, slice) / element;
    for (int i = 0; i < range.pieces() && wanted > 0; ++i) {
      const ChunkRange piece = range.piece(i);
      const std::size_t length = chunks.size(piece), taken = std::min(length, skipped + wanted);
      if (taken > skipped) {
        const std::size_t begin = chunks.begin(piece) - chunks.begin(within) + skipped;
        parts.emplace_back(buffer + begin * element, (taken - skipped) * element);
        wanted -= taken - skipped;
        skipped = 0;
      } else {
        skipped -= length;
      }
    }
  }
  // Scratch memory has room for one segment of every chunk.
  std::size_t scratch_offset_of(ChunkRange range, int slice) const {
    const auto row = static_cast<std::size_t>(range.first) * segment_slices;
    return (row + slice % segment_slices) * slice_elements * element;
  }
  std::size_t scratch_bytes(int chunks) const {
    return static_cast<std::size_t>(chunks) * segment_slices * slice_elements * element;
  }

  std::size_t element;  // bytes
  std::size_t slice_elements;
  int segment_slices;
  int segments;
};

// The data path of one call, from its first slice to its last.
class Pipeline {
 public:
  Pipeline(Transport& transport, const DataFlow& flow, const Task& task, const Buffers& buffers,
           const Slicing& slicing, PipelineMemory& memory, const MessageHeader& header)
      : transport_(transport),
        flow_(flow),
        task_(task),
        buffers_(buffers),
        slicing_(slicing),
        memory_(memory),
        header_(header),
        end_{slicing.segments, 0, 0} {
    to_send_ = sent_ = seek({}, true);
    to_receive_ = seek({}, false);
  }

  bool finished() const { return to_send_ == end_ && sent_ == end_ && to_receive_ == end_; }

  // Posts every send that may go, and the next receive.
  void post_all_allowed() {
    apply_own_slices();
    while (may_send(to_send_)) post_send();
    if (to_receive_ != end_ && !receive_posted_ && !from_itself(to_receive_)) post_receive();
  }

  // A send or the receive is complete.
  void complete(const Completion& completion) {
    if (completion.kind == Completion::sent) {
      sent_ = after(sent_, true);
    } else {
      arrived_ = true;
      payload_ = completion.payload;
    }
    if (!arrived_) return;
    if (may_apply(to_receive_)) return apply_received_slice();
    // The slice must wait for a send out of the same chunk. Two ranks that exchange a chunk would
    // wait for each other: each send is complete only when the peer has released the slice. So the
    // slice is buffered.
    if (completion.kind == Completion::received) {
      buffered_.assign(payload_.begin(), payload_.end());
      payload_ = buffered_;
      transport_.release();
    }
  }

 private:
  void post_send() {
    const Send& send = *step(to_send_).send;
    std::vector<std::byte>& room = memory_.packed[posted_++ % (memory_.packed.size() - 1)];
    transport_.post_send(send.to, header(to_send_, task_.extent(send)), payload_of(to_send_, room));
    to_send_ = after(to_send_, true);
  }

  void post_receive() {
    const Receive& receive = *step(to_receive_).receive;
    std::span<std::byte> into;
    direct_ = false;
    if (receive.action == Action::overwrite && may_apply(to_receive_)) {
      const auto& parts = in_result(receive.chunks, to_receive_.slice);
      direct_ = parts.size() == 1;
      if (direct_) into = parts[0];
    }
    transport_.post_receive(receive.from, header(to_receive_, task_.extent(receive)), into);
    receive_posted_ = true;
  }

  // A rank sends to itself without the transport.
  void apply_own_slices() {
    while (from_itself(to_receive_) && may_apply(to_receive_)) {
      apply(payload_of(to_receive_, memory_.packed.back()));
      to_receive_ = after(to_receive_, false);
    }
  }

  void apply_received_slice() {
    if (!direct_) apply(payload_);
    if (buffered_.empty() || payload_.data() != buffered_.data()) transport_.release();
    arrived_ = receive_posted_ = false;
    to_receive_ = after(to_receive_, false);
  }

  void apply(std::span<const std::byte> payload) {
    if (payload.empty()) return;
    const Receive& receive = *step(to_receive_).receive;
    const auto& into = in_result(receive.chunks, to_receive_.slice);
    const bool adds = receive.action == Action::add,
               first = adds && flow_.first_touch[to_receive_.step];
    if (first) in_input(receive.chunks, to_receive_.slice);
    for (std::size_t i = 0; i < into.size(); ++i) {
      const std::span<std::byte> part = into[i];
      if (adds)
        combine(task_.call.type, task_.call.reduce, part.data(),
                first ? memory_.input_parts[i].data() : part.data(), payload.data(),
                part.size() / slicing_.element);
      else
        std::memcpy(part.data(), payload.data(), part.size());
      payload = payload.subspan(part.size());
    }
  }

  bool may_send(const Cursor& at) const {
    if (at == end_) return false;
    int under_way = 0;
    for (Cursor c = sent_; c != at; c = after(c, true)) ++under_way;
    if (under_way >= transport_.window()) return false;
    const DataFlow::Need& need = flow_.send_needs[at.step];
    return need.step == DataFlow::none ||
           to_receive_ > Cursor{at.segment, need.step, need.same_chunks ? at.slice : INT_MAX};
  }

  bool may_apply(const Cursor& at) const {
    const DataFlow::Need& need = flow_.receive_needs[at.step];
    if (need.step != DataFlow::none)
      return sent_ > Cursor{at.segment, need.step, need.same_chunks ? at.slice : INT_MAX};
    const int last_use = flow_.reused_after[at.step];
    if (at.segment == 0 || last_use == DataFlow::none || kept(step(at).receive->chunks))
      return true;
    // The slice of the segment before must have left the scratch memory.
    return sent_ > Cursor{at.segment - 1, last_use, at.slice - slicing_.segment_slices};
  }

  const Step& step(const Cursor& at) const { return task_.schedule.steps[at.step]; }
  bool from_itself(const Cursor& at) const {
    return at != end_ && step(at).receive && step(at).receive->from == transport_.rank();
  }

  MessageHeader header(const Cursor& at, const Task::Extent& extent) const {
    MessageHeader header = header_;
    if (header.call.unequal) header.call.count = extent.elements();
    header.step = static_cast<std::uint32_t>(at.step);
    header.slice = static_cast<std::uint32_t>(at.slice);
    header.bytes = slicing_.bytes_of(extent, at.slice);
    return header;
  }

  // Where a slice lies. The result is good until the next call.
  bool kept(ChunkRange range) const { return contains(buffers_.kept, range.first); }
  const std::vector<std::span<const std::byte>>& in_input(ChunkRange range, int slice) {
    slicing_.find_parts({task_.input_chunks, range}, slice, buffers_.input, buffers_.given,
                        memory_.input_parts);
    return memory_.input_parts;
  }

  // In the output, or in scratch memory where the chunk only passes through this rank.
  const std::vector<std::span<std::byte>>& in_result(ChunkRange range, int slice) {
    const Task::Extent extent{task_.chunks, range};
    if (kept(range)) {
      slicing_.find_parts(extent, slice, buffers_.output, buffers_.kept, memory_.result_parts);
    } else {
      memory_.result_parts.assign(
          1, {memory_.scratch.data() + slicing_.scratch_offset_of(range, slice),
              slicing_.bytes_of(extent, slice)});
    }
    return memory_.result_parts;
  }

  std::span<const std::byte> payload_of(const Cursor& at, std::vector<std::byte>& room) {
    const ChunkRange source = step(at).send->taken();
    if (source.count == 0) return {};
    return flow_.from_input[at.step] ? joined(in_input(source, at.slice), room)
                                     : joined(in_result(source, at.slice), room);
  }

  // A message is side by side in memory: several parts are copied to `room`.
  template <class Parts>
  static std::span<const std::byte> joined(const Parts& parts, std::vector<std::byte>& room) {
    if (parts.size() == 1) return parts[0];
    room.clear();
    for (const auto& part : parts) room.insert(room.end(), part.begin(), part.end());
    return room;
  }

  // The first slice at or after `at` that this rank sends (or receives).
  Cursor seek(Cursor at, bool sending) const {
    const int steps = static_cast<int>(task_.schedule.steps.size());
    const int per_segment = slicing_.segment_slices;
    for (; at.segment < end_.segment; at = {at.segment + 1, 0, (at.segment + 1) * per_segment}) {
      const int segment_end = (at.segment + 1) * per_segment;
      for (; at.step < steps; at = {at.segment, at.step + 1, at.segment * per_segment}) {
        const auto& [send, receive] = step(at);
        const bool takes_part =
            sending ? send && send->to != transport_.rank() : receive.has_value();
        if (!takes_part) continue;
        const int slices =
            slicing_.slices_of(sending ? task_.extent(*send) : task_.extent(*receive));
        if (at.slice < std::min(segment_end, slices)) return at;
      }
    }
    return end_;
  }
  Cursor after(Cursor at, bool sending) const { return ++at.slice, seek(at, sending); }

  Transport& transport_;
  const DataFlow& flow_;
  const Task& task_;
  const Buffers buffers_;
  const Slicing& slicing_;
  PipelineMemory& memory_;
  const MessageHeader header_;  // all but step, slice, bytes, and the count of an unequal block
  const Cursor end_;

  Cursor to_send_, sent_, to_receive_;  // the next slice to post, to see sent, to receive
  bool receive_posted_ = false;
  bool direct_ = false;   // the posted receive writes directly to where the slice belongs
  bool arrived_ = false;  // the slice to receive is in payload_, not yet applied
  std::span<const std::byte> payload_;
  std::vector<std::byte> buffered_;
  std::size_t posted_ = 0;  // sends so far
};

// Whether the chunks that are both given and kept lie at the same address in both buffers.
bool shares_memory(const Buffers& buffers, const Chunks& chunks, std::size_t element) {
  const ChunkRange given = buffers.given, kept = buffers.kept;
  if (!overlap(given, kept)) return false;
  const std::size_t begin = chunks.begin(std::max(given.first, kept.first));
  return buffers.input + (begin - chunks.begin(given)) * element ==
         buffers.output + (begin - chunks.begin(kept)) * element;
}

}  // namespace

class PipelinedExecutor final : public Executor {
 public:
  PipelinedExecutor(Transport& transport, const ExecutorOptions& options)
      : Executor(transport),
        announcing_(transport, options),
        slice_bytes_(options.slice_bytes != 0 ? options.slice_bytes : transport.slice_bytes()),
        slices_per_segment_(options.slices_per_segment),
        memory_(transport.window()) {}

  void run(const Task& task) override {
    if (announcing_.takes(task)) return announcing_.run(task);
    const std::size_t element = size_of(task.call.type);
    const Chunks& chunks = task.chunks;
    const Buffers& buffers = task.buffers;
    const DataFlow& flow = flow_of(task.schedule, shares_memory(buffers, chunks, element));
    if (flow.single_chunks || buffers.kept.count == chunks.chunks()) return pipeline(flow, task);

    // A message of several chunks needs them side by side. A rank that keeps only some of them runs
    // in a workspace, and copies those out.
    workspace_.resize(chunks.count() * element);
    Task through = task;
    through.buffers.output = workspace_.data();
    through.buffers.kept = {0, chunks.chunks()};
    pipeline(flow_of(task.schedule, false), through);
    const std::size_t bytes = chunks.size(buffers.kept) * element;
    if (bytes > 0)
      std::memcpy(buffers.output, workspace_.data() + chunks.begin(buffers.kept) * element, bytes);
  }

 private:
  void pipeline(const DataFlow& flow, const Task& task) {
    const Buffers buffers = prepare(flow, task);
    const Slicing slicing(task, flow, slice_bytes_, slices_per_segment_);
    bool passes_through = false;  // some chunk is received that this rank does not keep
    for (int c = 0; c < task.chunks.chunks(); ++c)
      passes_through = passes_through || (flow.received[c] && !contains(buffers.kept, c));
    const std::size_t scratch_bytes = slicing.scratch_bytes(task.chunks.chunks());
    if (passes_through && memory_.scratch.size() < scratch_bytes)
      memory_.scratch.resize(scratch_bytes);

    Pipeline pipeline(transport_, flow, task, buffers, slicing, memory_, header(task, 0, 0));
    while (!pipeline.finished()) {
      pipeline.post_all_allowed();
      if (pipeline.finished()) return;
      pipeline.complete(*transport_.wait(Deadline::never()));
    }
  }

  const DataFlow& flow_of(const Schedule& schedule, bool in_place) {
    const auto [known, is_new] = flows_.try_emplace({&schedule, in_place});
    if (is_new) known->second = data_flow(schedule, in_place);
    return known->second;
  }

  // Copies what must lie elsewhere before the first step: chunks of the output that nothing is
  // received into, and what the data flow asks for. Returns where the data is then.
  Buffers prepare(const DataFlow& flow, const Task& task) {
    const Chunks& chunks = task.chunks;
    const std::size_t element = size_of(task.call.type);
    Buffers buffers = task.buffers;
    for (int c = 0; c < chunks.chunks(); ++c) {
      const bool wanted = flow.starts_in_output || !flow.received[c];
      if (!wanted || chunks.size(c) == 0 || !contains(buffers.given, c) ||
          !contains(buffers.kept, c))
        continue;
      const auto offset = [&](const Chunks& in, ChunkRange within) {
        return (in.begin(c) - in.begin(within)) * element;
      };
      const std::byte* in = buffers.input + offset(task.input_chunks, buffers.given);
      std::byte* out = buffers.output + offset(chunks, buffers.kept);
      if (in != out) std::memcpy(out, in, chunks.size(c) * element);
    }
    if (flow.keeps_input) {
      kept_input_.assign(buffers.input,
                         buffers.input + task.input_chunks.size(buffers.given) * element);
      buffers.input = kept_input_.data();
    }
    return buffers;
  }

  AnnouncingExecutor announcing_;
  const std::size_t slice_bytes_;
  const int slices_per_segment_;
  std::map<std::pair<const Schedule*, bool>, DataFlow> flows_;
  PipelineMemory memory_;
  std::vector<std::byte> kept_input_, workspace_;  // kept between calls
};

std::unique_ptr<Executor> make_pipelined_executor(Transport& transport,
                                                  const ExecutorOptions& options) {
  return std::make_unique<PipelinedExecutor>(transport, options);
}

}  // namespace ringside::collectives

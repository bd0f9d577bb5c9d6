#include "exercises/judge/gpu/graphs.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "exercises/judge/gpu/point.hpp"

namespace ringside::gpu {

namespace emulated_training {

enum Kind { batch_copy, rate_copy, forward_pass, backward_pass, reduction, weight_update };
enum Engine { copies, compute, network, updates };

struct Work {
  Kind kind;
  int layer = 0;
  int step = 0;         // of copies
  float argument = -1;  // update_by's
  Engine engine() const {
    if (kind < forward_pass) return copies;
    return kind == reduction ? network : kind == weight_update ? updates : compute;
  }
  std::string text() const {
    constexpr const char* names[] = {"copy_batch", "copy_rate", "forward",
                                     "backward",   "reduce",    "update"};
    return kind < forward_pass ? std::string(names[kind])
                               : fmt::format("{} of layer {}", names[kind], layer);
  }
};

struct Node {
  Work work;
  int stream;
  Operations after;  // nodes
};

static float rate_of(int step) {
  return 0.1f / static_cast<float>(1 + step);
}

}  // namespace emulated_training
using namespace emulated_training;

double duration_of(int kind, int layer) {
  constexpr double base[] = {0.2, 1, 2, 2.5, 0.5};
  return base[kind] * (1 + 0.1 * (layer * 7 % 5));
}

struct EmulatedTraining::State {
  struct Stream {
    Point point;
    bool captured = false;
    Operations nodes;  // that come before what it is given next
  };
  struct Event {
    Point point;
    int capture = -1;  // that recorded it last
    Operations nodes;
    bool recorded = false;
  };
  struct Memory {
    int step = -1;  // whose numbers it holds; of weights: how often they were updated
    int writer = -1;
    std::vector<int> readers;  // since then
  };
  struct Layer {
    Memory activations, gradient, weights;
    bool allocated = false, reduced = false;
    int runs[6] = {};
  };

  int steps;
  std::vector<Layer> layers;
  Memory batch_memory, rate_memory, error;
  std::vector<Stream> streams;
  std::vector<Event> events;
  std::vector<std::vector<Node>> graphs;
  std::vector<std::string> operations;
  Point host;
  double busy_until[4] = {};
  int capture = -1, captures = 0, origin = 0;  // the capture that has begun, or -1
  std::vector<Node> nodes;                     // of it
  TrainingSeen result;

  template <class T>
  static T& at(std::vector<T>& all, int n, const char* what) {
    require(n >= 0 && n < static_cast<int>(all.size()), "there is no {} {}; there are {}", what, n,
            all.size());
    return all[static_cast<std::size_t>(n)];
  }
  void refuse(const std::string& fault) {
    if (result.capture_fault.empty()) result.capture_fault = fault;
  }
  void note(const std::string& fault) {
    if (result.step_fault.empty()) result.step_fault = fault;
  }

  // ---- Operations that run ----

  struct Running {
    std::size_t number;
    std::string text;
    int step;
    const Operations& after;
  };
  void order(const Running& self, int other) {
    if (other >= 0 && !self.after.has(static_cast<std::size_t>(other)))
      note(
          fmt::format("{} may begin before {} has ended: neither a stream, nor an event, nor the "
                      "host puts it after it",
                      self.text, operations[static_cast<std::size_t>(other)]));
  }
  // The numbers must be those of the operation's step.
  void read(const Running& self, Memory& memory, const std::string& what) {
    order(self, memory.writer);
    if (memory.step < 0)
      note(fmt::format("{} reads {}, where nobody has written yet", self.text, what));
    else if (memory.step != self.step)
      note(fmt::format("{} reads {} of step {}", self.text, what, memory.step));
    memory.readers.push_back(static_cast<int>(self.number));
  }
  void write(const Running& self, Memory& memory, int step) {
    order(self, memory.writer);
    for (const int reader : memory.readers)
      if (reader != static_cast<int>(self.number)) order(self, reader);
    memory = {step, static_cast<int>(self.number), {}};
  }

  // The numbers that the operation reads and writes.
  void touch(const Work& work, const Running& self) {
    Layer& layer = layers[static_cast<std::size_t>(work.layer)];
    const bool last = work.layer + 1 == static_cast<int>(layers.size());
    const auto of_layer = [](const char* what, int n) {
      return fmt::format("{} of layer {}", what, n);
    };
    switch (work.kind) {
      case batch_copy:
        return write(self, batch_memory, work.step);
      case rate_copy:
        return write(self, rate_memory, work.step);
      case forward_pass:
        if (work.layer == 0)
          read(self, batch_memory, "the batch");
        else
          read(self, layers[static_cast<std::size_t>(work.layer) - 1].activations,
               of_layer("activations", work.layer - 1));
        read(self, layer.weights, "weights");
        return write(self, layer.activations, self.step);
      case backward_pass:
        if (!layer.allocated) note(self.text + ": its gradient has no memory");
        read(self, layer.activations, "activations");
        read(self, layer.weights, "weights");
        if (!last) read(self, error, of_layer("the error", work.layer + 1));
        if (!last &&
            layers[static_cast<std::size_t>(work.layer) + 1].runs[backward_pass] <= self.step)
          note(fmt::format("{} comes before that of layer {}", self.text, work.layer + 1));
        write(self, error, self.step);
        layer.reduced = false;
        return write(self, layer.gradient, self.step);
      case reduction:
        read(self, layer.gradient, "the gradient");
        layer.reduced = true;
        return write(self, layer.gradient, self.step);
      case weight_update:
        read(self, layer.gradient, "the gradient");
        if (!layer.reduced) note(self.text + " takes a gradient that is not reduced");
        if (work.argument < 0)
          read(self, rate_memory, "the learning rate");
        else if (work.argument != rate_of(self.step))
          note(
              fmt::format("{} takes the learning rate {:.3g}, expected {:.3g}: a graph keeps the "
                          "arguments that it was captured with",
                          self.text, work.argument, rate_of(self.step)));
        read(self, layer.weights, "weights");
        return write(self, layer.weights, self.step + 1);
    }
  }

  // Runs the operation after `after`, and returns when it has ended.
  Point run(const Work& work, const Point& after) {
    const std::size_t number = operations.size();
    int& runs = layers[static_cast<std::size_t>(work.layer)].runs[work.kind];
    const int step = work.kind < forward_pass ? work.step : runs;
    operations.push_back(fmt::format("{} in step {}", work.text(), step));
    touch(work, {number, operations.back(), step, after.after});
    ++runs;
    double& busy = busy_until[work.engine()];
    const double begin = std::max(after.time, busy);
    busy = begin + duration_of(std::max(0, work.kind - 1), work.layer);
    result.makespan = std::max(result.makespan, busy);
    Point end{after.after, busy};
    end.after.add(number);
    return end;
  }

  void add(int stream, const Work& work) {
    require(work.layer >= 0 && work.layer < static_cast<int>(layers.size()),
            "there is no layer {}; there are {}", work.layer, layers.size());
    require(work.step >= 0 && work.step < steps, "there is no step {}; there are {}", work.step,
            steps);
    ++result.calls;
    Stream& queue = at(streams, stream, "stream");
    if (queue.captured) {
      nodes.push_back({work, stream, queue.nodes});
      queue.nodes.add(nodes.size() - 1);
      return;
    }
    queue.point.join(host);
    queue.point = run(work, queue.point);
  }
};

EmulatedTraining::EmulatedTraining(int layers, int steps) : state_(std::make_unique<State>()) {
  state_->steps = steps;
  state_->layers.resize(static_cast<std::size_t>(layers));
  for (State::Layer& layer : state_->layers) layer.weights.step = 0;
}
EmulatedTraining::~EmulatedTraining() = default;

int EmulatedTraining::new_stream() {
  state_->streams.emplace_back();
  return static_cast<int>(state_->streams.size()) - 1;
}
int EmulatedTraining::new_event() {
  state_->events.emplace_back();
  return static_cast<int>(state_->events.size()) - 1;
}
void EmulatedTraining::allocate_gradient(int layer) {
  State& state = *state_;
  State::Layer& its = State::at(state.layers, layer, "layer");
  if (state.capture >= 0)
    state.refuse(
        fmt::format("allocate_gradient of layer {} while stream {} is captured: memory "
                    "must be there before",
                    layer, state.origin));
  if (its.allocated)
    state.note(fmt::format("the gradient of layer {} is allocated a second time", layer));
  its.allocated = true;
  for (const State::Stream& stream : state.streams) state.host.join(stream.point);
}
void EmulatedTraining::copy_batch(int stream, int step) {
  state_->add(stream, {batch_copy, 0, step});
}
void EmulatedTraining::copy_rate(int stream, int step) {
  state_->add(stream, {rate_copy, 0, step});
}
void EmulatedTraining::forward(int stream, int layer) {
  state_->add(stream, {forward_pass, layer});
}
void EmulatedTraining::backward(int stream, int layer) {
  state_->add(stream, {backward_pass, layer});
}
void EmulatedTraining::reduce(int stream, int layer) {
  state_->add(stream, {reduction, layer});
}
void EmulatedTraining::update(int stream, int layer) {
  state_->add(stream, {weight_update, layer});
}
void EmulatedTraining::update_by(int stream, int layer, float rate) {
  state_->add(stream, {weight_update, layer, 0, rate});
}
float EmulatedTraining::rate(int step) const {
  require(step >= 0 && step < state_->steps, "there is no step {}; there are {}", step,
          state_->steps);
  return rate_of(step);
}

void EmulatedTraining::record(int event, int stream) {
  const State::Stream& from = State::at(state_->streams, stream, "stream");
  State::Event& into = State::at(state_->events, event, "event");
  ++state_->result.calls;
  into = {from.point, from.captured ? state_->capture : -1, from.nodes, true};
  into.point.join(state_->host);
}
void EmulatedTraining::wait(int stream, int event) {
  State& state = *state_;
  State::Stream& queue = State::at(state.streams, stream, "stream");
  const State::Event& from = State::at(state.events, event, "event");
  ++state.result.calls;
  if (!from.recorded) return;
  if (from.capture >= 0 && from.capture == state.capture) {
    if (!queue.captured) queue.nodes = {};
    queue.captured = true;
    queue.nodes.add(from.nodes);
  } else if (from.capture >= 0) {
    state.refuse(
        fmt::format("stream {} waits for event {}, which a capture has recorded: outside "
                    "of this capture it never happens",
                    stream, event));
  } else if (queue.captured) {
    state.refuse(
        fmt::format("stream {} is captured and waits for event {}, which was recorded "
                    "outside of the capture",
                    stream, event));
  } else {
    queue.point.join(from.point);
  }
}
void EmulatedTraining::synchronize(int stream) {
  State& state = *state_;
  const State::Stream& queue = State::at(state.streams, stream, "stream");
  ++state.result.host_waits;
  if (queue.captured)
    state.refuse(
        fmt::format("the host waits for stream {}, which is captured: nothing runs that "
                    "it could wait for",
                    stream));
  state.host.join(queue.point);
}

void EmulatedTraining::begin_capture(int stream) {
  State& state = *state_;
  State::Stream& queue = State::at(state.streams, stream, "stream");
  ++state.result.calls;
  if (state.capture >= 0)
    return state.refuse(fmt::format("begin_capture of stream {} while stream {} is captured",
                                    stream, state.origin));
  state.capture = state.captures++;
  state.origin = stream;
  state.nodes.clear();
  queue.captured = true;
  queue.nodes = {};
}
int EmulatedTraining::end_capture(int stream) {
  State& state = *state_;
  const State::Stream& queue = State::at(state.streams, stream, "stream");
  ++state.result.calls;
  if (state.capture < 0)
    state.refuse(fmt::format("end_capture of stream {}, which is not captured", stream));
  else if (stream != state.origin)
    state.refuse(fmt::format("end_capture of stream {}: the capture began in stream {}", stream,
                             state.origin));
  else
    for (std::size_t n = 0; n < state.nodes.size(); ++n)
      if (!queue.nodes.has(n))
        state.refuse(
            fmt::format("end_capture of stream {}: {} in stream {} is not joined; stream {} must "
                        "wait for an event that comes after it",
                        stream, state.nodes[n].work.text(), state.nodes[n].stream, stream));
  state.capture = -1;
  for (State::Stream& each : state.streams) each.captured = false;
  state.graphs.push_back(state.nodes);
  return static_cast<int>(state.graphs.size()) - 1;
}
void EmulatedTraining::replay(int graph, int stream) {
  State& state = *state_;
  const std::vector<Node>& nodes = State::at(state.graphs, graph, "graph");
  State::Stream& queue = State::at(state.streams, stream, "stream");
  ++state.result.calls;
  if (queue.captured)
    return state.refuse(fmt::format(
        "replay in stream {}, which is captured: a graph runs after its capture", stream));
  queue.point.join(state.host);
  std::vector<Point> ends;
  Point all = queue.point;
  for (const Node& node : nodes) {
    Point begin = queue.point;
    for (std::size_t n = 0; n < ends.size(); ++n)
      if (node.after.has(n)) begin.join(ends[n]);
    ends.push_back(state.run(node.work, begin));
    all.join(ends.back());
  }
  queue.point = all;
}

TrainingSeen EmulatedTraining::seen() const {
  TrainingSeen seen = state_->result;
  if (state_->capture >= 0 && seen.capture_fault.empty())
    seen.capture_fault = fmt::format("the capture of stream {} never ends", state_->origin);
  if (state_->graphs.empty() && seen.capture_fault.empty())
    seen.capture_fault = "no graph is captured";
  for (std::size_t n = 0; n < state_->layers.size() && seen.step_fault.empty(); ++n)
    if (const int times = state_->layers[n].weights.step; times != state_->steps)
      seen.step_fault = fmt::format(
          "layer {} is updated {} times, expected {}: a capture runs "
          "nothing",
          n, times, state_->steps);
  for (std::size_t n = 0; n < state_->operations.size() && seen.step_fault.empty(); ++n)
    if (!state_->host.after.has(n))
      seen.step_fault =
          fmt::format("the program returns while {} may still run: the host has not waited for it",
                      state_->operations[n]);
  return seen;
}

}  // namespace ringside::gpu

// What a program may ask of a GPU for exercise 39, and the emulated one that answers: it captures
// graphs as CUDA does, and follows which step's numbers each operation reads.
#pragma once

#include <memory>
#include <string>

namespace ringside::gpu {

// Trains a network of some layers, one of several replicas. Memory on the device: one batch, one
// learning rate, and for each layer activations, a gradient and weights. Operations of one stream
// run in order; those of different streams in any order, but for events. A stream that is captured
// runs nothing: its operations, with their arguments, become a graph, which replay() runs.
class TrainingDevice {
 public:
  virtual ~TrainingDevice() = default;

  virtual int new_stream() = 0;
  virtual int new_event() = 0;
  virtual void allocate_gradient(int layer) = 0;  // the host waits until the device does nothing

  virtual void copy_batch(int stream, int step) = 0;  // of this step, from the host's memory
  virtual void copy_rate(int stream, int step) = 0;   // this step's learning rate
  virtual void forward(int stream, int layer) = 0;
  virtual void backward(int stream, int layer) = 0;  // from the last layer to the first
  virtual void reduce(int stream, int layer) = 0;    // the mean gradient of all replicas
  virtual void update(int stream, int layer) = 0;    // by the learning rate on the device
  virtual void update_by(int stream, int layer, float rate) = 0;
  virtual float rate(int step) const = 0;  // of the host

  virtual void record(int event, int stream) = 0;  // what the stream has been given so far
  // The stream goes on when all that the event last recorded has ended. If a capture recorded it,
  // the stream joins this capture.
  virtual void wait(int stream, int event) = 0;
  virtual void synchronize(int stream) = 0;  // the host waits for all of the stream

  virtual void begin_capture(int stream) = 0;
  // The graph's number. All streams that have joined must have been waited for by this one.
  virtual int end_capture(int stream) = 0;
  virtual void replay(int graph, int stream) = 0;  // runs the graph as one operation of the stream
};

// What the emulated device saw.
struct TrainingSeen {
  std::string capture_fault;  // what CUDA refuses, or ""
  std::string step_fault;     // a wrong step, or an order that nothing ensures, or ""
  double makespan = 0;        // until the last operation has ended
  int calls = 0;              // of functions that take a stream, but for synchronize()
  int host_waits = 0;         // synchronize()
};

// How long an operation takes: 0 copies, 1 forward, 2 backward, 3 reduce, 4 update. Copies run one
// at a time; so do reductions, updates, and forward with backward.
double duration_of(int kind, int layer);

class EmulatedTraining : public TrainingDevice {
 public:
  EmulatedTraining(int layers, int steps);
  ~EmulatedTraining() override;

  int new_stream() override;
  int new_event() override;
  void allocate_gradient(int layer) override;
  void copy_batch(int stream, int step) override;
  void copy_rate(int stream, int step) override;
  void forward(int stream, int layer) override;
  void backward(int stream, int layer) override;
  void reduce(int stream, int layer) override;
  void update(int stream, int layer) override;
  void update_by(int stream, int layer, float rate) override;
  float rate(int step) const override;
  void record(int event, int stream) override;
  void wait(int stream, int event) override;
  void synchronize(int stream) override;
  void begin_capture(int stream) override;
  int end_capture(int stream) override;
  void replay(int graph, int stream) override;

  TrainingSeen seen() const;  // after the program has returned

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringside::gpu

namespace student::gpu {
using namespace ringside::gpu;
}

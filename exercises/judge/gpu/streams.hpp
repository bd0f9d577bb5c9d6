// What a program may ask of a GPU for exercise 38, and the emulated one that answers: it keeps the
// order that streams and events promise, and a clock of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringside::gpu {

// Chunks of the host's memory go to slots of the device's memory, through a kernel, and back.
// Everything but synchronize() returns at once, if the host's memory is pinned. Operations of one
// stream run in order; those of different streams in any order, but for events.
class Device {
 public:
  virtual ~Device() = default;

  virtual void pin_host_memory() = 0;  // else each copy makes the host wait until it has ended
  virtual int new_stream() = 0;
  virtual int new_event() = 0;
  virtual void copy_in(int stream, int slot, int chunk) = 0;
  virtual void run_kernel(int stream, int slot) = 0;
  virtual void copy_out(int stream, int slot, int chunk) = 0;
  virtual void record(int event, int stream) = 0;  // what the stream has been given so far
  // The stream goes on when all that the event last recorded has ended: at once if it recorded
  // nothing.
  virtual void wait(int stream, int event) = 0;
  virtual void synchronize(int stream) = 0;  // the host waits for all of the stream
};

// What the emulated device saw.
struct StreamsSeen {
  std::string fault;    // what may go wrong on a GPU, or ""
  double makespan = 0;  // until the last operation has ended
  int host_waits = 0;   // synchronize(), and copies of memory that is not pinned
};

// A copy in, a kernel and a copy out take times that depend on seed and chunk, and each kind of
// operation runs one at a time.
struct Durations {
  std::uint64_t seed = 0;
  double of(int kind, int chunk) const;  // kind: 0 copy in, 1 kernel, 2 copy out
};

class EmulatedDevice : public Device {
 public:
  EmulatedDevice(int chunks, int slots, Durations durations);
  ~EmulatedDevice() override;

  void pin_host_memory() override;
  int new_stream() override;
  int new_event() override;
  void copy_in(int stream, int slot, int chunk) override;
  void run_kernel(int stream, int slot) override;
  void copy_out(int stream, int slot, int chunk) override;
  void record(int event, int stream) override;
  void wait(int stream, int event) override;
  void synchronize(int stream) override;

  StreamsSeen seen() const;  // after the program has returned

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ringside::gpu

namespace student::gpu {
using namespace ringside::gpu;
}

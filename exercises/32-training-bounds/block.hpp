// A feed-forward block of three matrices, the machine that trains it, and what the exercise
// returns. Students get this file whole.
#pragma once

namespace ringside::bounds {

// y = (silu(x W1) * (x W3)) W2, with x, y of [B, D], W1 and W3 of [D, F], W2 of [F, D], all in
// bf16.
struct Block {
  double d = 0, f = 0;
};

struct Machine {
  double flops = 0;      // C: FLOP/s of a device
  double bandwidth = 0;  // W: bytes per second of a device's link, both directions together
};

// Seconds of one pass on one device.
struct Pass {
  double compute = 0, communicate = 0;
};

struct Step {
  Pass forward, backward;
};

// N devices: X for FSDP times `tensor`, which is Y, for tensor parallel.
struct Split {
  double tensor = 0;
  double tokens = 0;  // the least B/N with which no device waits
};

}  // namespace ringside::bounds

namespace student::bounds {
using namespace ringside::bounds;
}

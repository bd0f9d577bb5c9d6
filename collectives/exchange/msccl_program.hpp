// What an MSCCL file says (msccl_xml.hpp), and its way to our schedules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/collective.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives::msccl {

// Chunks `first`, first+1, ... of a buffer: 'i' (input), 'o' (output) or 's' (scratch).
struct Place {
  char buffer;
  int first;
};

// A step of a thread block, or one half of a step that receives and sends.
struct Instruction {
  std::string where;  // "gpu 0, tb 1, step 3"
  int step;
  int count = 0;  // chunks
  enum class Kind { nop, send, receive, copy } kind = Kind::nop;
  bool adds = false;      // a receive or a copy: to what is at the target
  bool forwards = false;  // a send of what the half before has received
  bool discards = false;  // both halves: what arrives is sent on and not kept (rrs)
  std::optional<Place> source = {}, target = {};
  int after_block = -1, after_step = -1;  // it waits for that step of the same GPU
};

struct Block {
  std::string name;
  int send_to, receive_from, channel;
  std::vector<Instruction> instructions = {};
  int steps = 0;
};

struct Gpu {
  int id;
  std::vector<Block> blocks = {};
};

struct Program {
  Collective collective;
  bool in_place = false;  // i and o are one memory
  int chunks = 1;         // of the whole buffer
  int parts = 1;          // of a rank's block
  std::vector<Gpu> gpus = {};

  // The chunk of the whole buffer at a place of i or o.
  int chunk_of(int gpu, const Place& place) const;
  // Whether both are the same chunks, also where one is in i and the other in o.
  bool is_same(int gpu, const Place& a, const Place& b) const;
};

// All thread blocks in lockstep. Throws Error with the step that cannot be done, and why.
std::vector<Schedule> schedules_of(const Program& program);

}  // namespace ringside::collectives::msccl

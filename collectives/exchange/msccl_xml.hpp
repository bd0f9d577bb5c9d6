// Algorithms of Microsoft's MSCCL, as XML: reads those that msccl-tools writes as schedules, and
// writes schedules for its runtime.
//
//     <algo name="exchange" coll="allreduce" ngpus="2" nchunksperloop="1" inplace="1">
//       <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
//         <tb id="0" send="1" recv="1" chan="0">
//           <step s="0" type="s" srcbuf="i" srcoff="0" cnt="1" depid="-1" deps="-1" />
//           <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" ... />
//
// A thread block (tb) takes its steps in order. It sends to one peer and receives from one, on a
// channel; the nth send on a channel is the nth receive. A step waits until step `deps` of block
// `depid` is done.
//
//     s      send                              r     receive
//     rcs    receive, and send that on         rrc   receive, and add
//     rrs    receive, add, send, do not keep   rrcs  receive, add, and send
//     cpy    copy on this GPU                  re    add on this GPU            nop   only wait
//
// The buffers i and o (input, output) become the chunks of our one buffer, which begins as the
// input; they are one memory where inplace is 1. All thread blocks run in lockstep: in each step a
// GPU sends one message and receives one, as our schedules do, so a step of many blocks becomes
// several. A schedule has no scratch memory (s): what arrives there is sent when it is first used.
// What a GPU forwards from there it keeps in chunks of its own that are still empty. A file for
// which there are none, or that needs old data there, is refused.
//
// Source of the format: Cowan, Maleki, Musuvathi, Saarikivi and Xiong, "MSCCLang: Microsoft
// collective communication language", ASPLOS 2023, section 4; its interpreter in MSCCL.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/collective.hpp"
#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

struct MscclAlgorithm {
  Collective collective;
  std::vector<Schedule> schedules;  // [rank]
};

// Throws Error with the element that is wrong, what was expected and what was seen. Nothing is
// proved: a file may be well formed and wrong.
MscclAlgorithm read_msccl(const std::string& text);

// One file for these ranks. Each GPU takes its lines in the order of its schedule, over one channel
// and one thread block for each pair of peers. In place where every rank still holds what it sends
// of its input; otherwise the input is copied to the output first. Throws Error for what MSCCL
// cannot take: another collective, more than 255 steps in a block or 32 blocks of a GPU, and what
// would need scratch memory.
std::string write_msccl(const std::string& name, Collective collective,
                        const std::vector<Schedule>& schedules);

}  // namespace ringside::collectives

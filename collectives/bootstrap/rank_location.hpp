// Where a rank runs, as ranks tell each other: on which host, in which process, on which GPU.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringside::collectives {

// The bytes are sent as they are.
struct RankLocation {
  char host[64] = {};      // its name, for messages: cloned hosts have the same
  char gpu[32] = {};       // PCI bus id and UUID (Device::place); cloned hosts have the same
  std::uint64_t boot = 0;  // hash of the host's boot id, which no other host has
  // Equal for processes that know each other's IDs, and reach each other through /proc/ID: those of
  // one host and one namespace of process IDs. A container has its own.
  std::uint64_t proc_domain = 0;
  std::int64_t process = 0;  // its ID in that namespace
};

RankLocation location_of_this_process(std::string_view gpu = {});

bool on_one_host(const RankLocation& a, const RankLocation& b);
bool on_one_gpu(const RankLocation& a, const RankLocation& b);
bool in_one_process(const RankLocation& a, const RankLocation& b);

// Whether each process has the ID for the other that it has for itself.
bool know_their_process_ids(const RankLocation& a, const RankLocation& b);

}  // namespace ringside::collectives

// read_torch_flights: the flight records of a PyTorch job as those of one of ours.
//
// PyTorch writes a file for each rank when its watchdog gives up (nccl_trace_rank_3), or at any
// time with torch._C._distributed_c10d._dump_nccl_trace() or, of gloo, _dump_fr_trace(); their
// _json forms are read as well. A rank's number is at the end of its file's name.
#pragma once

#include <filesystem>
#include <vector>

#include "collectives/diagnostics/flight_recorder.hpp"

namespace ringside::collectives {

// Whether a file's name is one of a rank's record: "nccl_trace_rank_3", "rank_3.json".
bool is_torch_flight(const std::filesystem::path& file);

// One for each group of each file; a call's operation and algorithm are not in it. Throws Error
// that names a file and what is wrong in it. Source of the format: torch/csrc/distributed/c10d/
// FlightRecorder.hpp, version 2.10 of its records.
std::vector<Flight> read_torch_flights(const std::vector<std::filesystem::path>& files);

}  // namespace ringside::collectives

// Diagnoses of flight records that are written by hand; flight_recorder_test.cpp has those of real
// failures.
#include "collectives/diagnostics/diagnosis.hpp"

#include <doctest/doctest.h>

using namespace ringside;
using namespace ringside::collectives;

namespace {

// Ranks of a group, each of which has ended the same all-reduce.
std::vector<Flight> group_of(int size) {
  std::vector<Flight> flights(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Flight& flight = flights[static_cast<std::size_t>(rank)];
    flight.header.rank = rank;
    flight.header.size = size;
    flight.entries.push_back(
        {.sequence = 1,
         .call = {.collective = Collective::all_reduce, .count = 8, .label = {}},
         .state = FlightEntry::done});
  }
  return flights;
}

// The rank waits for a message of another one, or has it already.
void add_message(Flight& flight, int from, FlightEntry::State state) {
  flight.entries.push_back(
      {.sequence = 1,
       .call = {.collective = Collective::point_to_point, .root = from, .label = {}},
       .state = state,
       .waiting_for = from});
}

}  // namespace

TEST_CASE("diagnosis: a circle of messages, and a rank that waits for it from outside") {
  std::vector<Flight> flights = group_of(4);
  add_message(flights[0], 2, FlightEntry::under_way);
  add_message(flights[1], 2, FlightEntry::failed);
  add_message(flights[2], 3, FlightEntry::under_way);
  add_message(flights[3], 1, FlightEntry::under_way);
  CHECK(circle(flights) == std::vector{1, 2, 3});
  CHECK_FALSE(divergence(flights));
  CHECK_FALSE(laggards(flights));
  CHECK(without_record(flights).empty());
  CHECK(postmortem(flights).find("Ranks wait for each other in a circle: rank 1 for rank 2, rank 2 "
                                 "for rank 3, rank 3 for rank 1.") != std::string::npos);
}

TEST_CASE("diagnosis: messages that have come, and a chain with an end, are no circle") {
  std::vector<Flight> flights = group_of(3);
  add_message(flights[0], 1, FlightEntry::under_way);
  add_message(flights[1], 2, FlightEntry::under_way);
  CHECK(circle(flights).empty());
  add_message(flights[2], 0, FlightEntry::done);
  CHECK(circle(flights).empty());
}

TEST_CASE("diagnosis: the rank that left no record, and none that is late") {
  std::vector<Flight> flights = group_of(3);
  flights.erase(flights.begin() + 1);
  CHECK(without_record(flights) == std::vector{1});
  CHECK_FALSE(laggards(flights));
  flights[1].entries.push_back({.sequence = 2, .call = {}, .state = FlightEntry::under_way});
  REQUIRE(laggards(flights));
  CHECK(laggards(flights)->ranks == std::vector{0});
  CHECK(laggards(flights)->sequence == 2);
}

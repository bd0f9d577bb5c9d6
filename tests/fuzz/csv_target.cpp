// Fuzzes the reader of pipeline schedules. What it accepts must be read again as the same schedule,
// and cannot need more memory than its cells.
#include "tests/fuzz/target.hpp"

#include <stdexcept>

#include "parallel/pipeline/csv.hpp"

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  pipeline_parallel::Schedule schedule;
  if (!accepts([&] { schedule = pipeline_parallel::parse_csv(input, "schedule.csv"); }))
    return false;
  if (schedule.micro_batches < 1 || schedule.ranks() < 1)
    throw std::logic_error("a schedule without micro-batches or ranks was accepted");
  const std::string text = csv_of(schedule);
  if (csv_of(pipeline_parallel::parse_csv(text, "again")) != text)
    throw std::logic_error("a schedule changes when it is written and read again");
  return true;
}

std::vector<std::string> good_inputs() {
  return {"0F0,0F1,,,0B0,0B1\n,1F0,1B0,1F1,1B1,\n",
          "0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n"};
}

std::vector<std::string> words() {
  return {"2147483647",
          "4294967296",
          "65535",
          "65536",
          "-1",
          "F",
          "B",
          "I",
          "W",
          "SEND_F",
          "RECV_B",
          "REDUCE_GRAD",
          ",",
          "\n",
          "\r\n",
          " ",
          std::string(1, '\0')};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz

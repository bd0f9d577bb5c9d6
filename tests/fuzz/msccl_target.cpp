// Fuzzes the reader of MSCCL's XML. What it accepts has as many schedules as GPUs, all of the same
// length, and can be proved right or wrong.
#include "base/read_file.hpp"
#include "tests/fuzz/target.hpp"

#include <filesystem>
#include <stdexcept>

#include "collectives/exchange/msccl_xml.hpp"
#include "collectives/proof/verify.hpp"

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  collectives::MscclAlgorithm read{};
  if (!accepts([&] { read = collectives::read_msccl(input); })) return false;
  for (const auto& schedule : read.schedules)
    if (schedule.steps.size() != read.schedules[0].steps.size() || schedule.chunks < 1)
      throw std::logic_error("schedules of different lengths were accepted");
  if (read.schedules.empty()) throw std::logic_error("an algorithm without a GPU was accepted");
  // The proof keeps ranks * ranks * chunks numbers.
  if (read.schedules.size() * read.schedules[0].chunks < 1000)
    collectives::verify(read.collective, read.schedules);
  return true;
}

std::vector<std::string> good_inputs() {
  std::vector<std::string> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(MSCCL_FILES))
    inputs.push_back(read_file(entry.path()));
  return inputs;
}

std::vector<std::string> words() {
  return {"<algo",
          "<gpu",
          "<tb ",
          "<step ",
          "</tb>",
          "/>",
          "<!--",
          "-->",
          "<!DOCTYPE",
          "<![CDATA[",
          "<?",
          "&lt;",
          "&#0;",
          "type=\"rrs\"",
          "type=\"rcs\"",
          "type=\"re\"",
          "type=\"cpy\"",
          "type=\"nop\"",
          "srcbuf=\"s\"",
          "dstbuf=\"s\"",
          "dstbuf=\"o\"",
          "coll=\"alltoall\"",
          "coll=\"reduce_scatter\"",
          "inplace=\"0\"",
          "cnt=\"2\"",
          "cnt=\"16384\"",
          "depid=\"0\"",
          "2147483647",
          "4294967296",
          "-1",
          "\"",
          "'",
          "\xff"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz

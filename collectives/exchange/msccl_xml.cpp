#include "collectives/exchange/msccl_xml.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "collectives/exchange/msccl_program.hpp"
#include "collectives/exchange/xml.hpp"

namespace ringside::collectives {
namespace {

using namespace msccl;

constexpr int most_gpus = 1024, most_chunks = 16384;

struct Element {
  const XmlElement& xml;
  std::string path;  // "gpu 0, tb 1, step 3"

  std::string name() const { return fmt::format("{} (line {})", path, xml.line); }
  bool has(const char* key) const { return xml.find(key) != nullptr; }
  std::string text(const char* key) const {
    require(has(key), "{} has no attribute '{}'", name(), key);
    return *xml.find(key);
  }
  int number(const char* key, int least, int most) const {
    const std::string seen = text(key);
    int value = 0;
    const auto [end, code] = std::from_chars(seen.data(), seen.data() + seen.size(), value);
    require(
        code == std::errc() && end == seen.data() + seen.size() && value >= least && value <= most,
        "{}: {} must be a number from {} to {}, not '{}'", name(), key, least, most, seen);
    return value;
  }
  // Calls `read(Element)` for the elements inside, all of which must be of that kind.
  template <class Read>
  void each(const std::string& kind, const char* numbered_by, Read read) const {
    for (const XmlElement& child : xml.children) {
      require(child.kind == kind, "{}: expected <{}>, not <{}> (line {})", name(), kind, child.kind,
              child.line);
      const std::string* const number = child.find(numbered_by);
      read(Element{child, fmt::format("{}{} {}", path == "algo" ? "" : path + ", ", kind,
                                      number ? *number : fmt::format("without {}", numbered_by))});
    }
  }
};

Place place(const Element& step, const char* buffer, const char* offset, int count, int chunks) {
  const std::string letter = step.text(buffer);
  require(letter == "i" || letter == "o" || letter == "s", "{}: {} must be i, o or s, not '{}'",
          step.name(), buffer, letter);
  return {letter[0], step.number(offset, 0, chunks - count)};
}

void add_step(const Element& step, const Gpu& gpu, const Program& program, Block& block) {
  struct Kind {
    const char* name;
    bool receives, adds, sends;
  };
  static constexpr Kind kinds[] = {
      {"s", false, false, true},    {"r", true, false, false},  {"rcs", true, false, true},
      {"rrc", true, true, false},   {"rrcs", true, true, true}, {"rrs", true, true, true},
      {"cpy", false, false, false}, {"re", false, true, false}, {"nop", false, false, false}};
  const int number = block.steps++;
  require(step.number("s", 0, number) == number, "{}: expected step {}", step.name(), number);
  const std::string type = step.text("type");
  const auto* const kind = std::find_if(std::begin(kinds), std::end(kinds),
                                        [&](const Kind& each) { return each.name == type; });
  require(kind != std::end(kinds),
          "{}: type must be one of s, r, rcs, rrc, rrcs, rrs, cpy, re and nop, not '{}'",
          step.name(), type);

  constexpr int most_scratch = most_chunks;
  Instruction instruction{.where = step.name(), .step = number};
  if (step.has("depid")) instruction.after_block = step.number("depid", -1, most_chunks);
  if (instruction.after_block >= 0) instruction.after_step = step.number("deps", 0, most_chunks);
  if (type == "nop") return block.instructions.push_back(instruction);

  const int count = instruction.count = step.number("cnt", 1, program.chunks);
  const bool local = !kind->receives && !kind->sends;
  const bool reads = local || kind->adds || !kind->receives, writes = local || kind->receives;
  if (reads) instruction.source = place(step, "srcbuf", "srcoff", count, most_scratch);
  if (writes) instruction.target = place(step, "dstbuf", "dstoff", count, most_scratch);
  if (kind->receives) {
    require(block.receive_from >= 0, "{}: {} receives, but recv of its tb is -1", step.name(),
            type);
    // The two readings of msccl-tools and of its interpreter then agree.
    require(!kind->adds || program.is_same(gpu.id, *instruction.source, *instruction.target),
            "{}: src and dst of {} must be the same place, as what arrives is added there",
            step.name(), type);
  }
  if (kind->sends)
    require(block.send_to >= 0, "{}: {} sends, but send of its tb is -1", step.name(), type);

  using enum Instruction::Kind;
  instruction.adds = kind->adds;
  instruction.discards = type == "rrs";
  instruction.kind = local ? copy : kind->receives ? receive : send;
  block.instructions.push_back(instruction);
  if (!kind->receives || !kind->sends) return;
  Instruction sends{.where = step.name(), .step = number, .count = count, .kind = send};
  sends.source = instruction.target;
  sends.forwards = true;
  sends.discards = instruction.discards;
  block.instructions.push_back(sends);
}

Collective collective_of(const Element& algo) {
  using enum Collective;
  static const std::map<std::string, Collective> known = {{"allreduce", all_reduce},
                                                          {"allgather", all_gather},
                                                          {"reducescatter", reduce_scatter},
                                                          {"reduce_scatter", reduce_scatter},
                                                          {"alltoall", all_to_all}};
  const auto found = known.find(algo.text("coll"));
  require(found != known.end(),
          "{}: coll must be allreduce, allgather, reducescatter or alltoall, not '{}'", algo.name(),
          algo.text("coll"));
  return found->second;
}

}  // namespace

MscclAlgorithm read_msccl(const std::string& text) {
  const XmlElement root = parse_xml(text);
  require(root.kind == "algo", "line {}: expected <algo>, not <{}>", root.line, root.kind);
  const Element algo{root, "algo"};
  Program program{.collective = collective_of(algo)};
  program.in_place = algo.has("inplace") && algo.number("inplace", 0, 1) == 1;
  program.chunks = algo.number("nchunksperloop", 1, most_chunks);
  const int gpus = algo.number("ngpus", 1, most_gpus);
  program.parts = std::max(1, program.chunks / gpus);
  require(!has_blocks(program.collective) || program.chunks % gpus == 0,
          "{}: nchunksperloop must be a multiple of ngpus, {}, not {}", algo.name(), gpus,
          program.chunks);

  algo.each("gpu", "id", [&](const Element& element) {
    const int id = static_cast<int>(program.gpus.size());
    require(element.number("id", 0, gpus - 1) == id, "{}: expected gpu {}", element.name(), id);
    Gpu gpu{.id = id};
    element.each("tb", "id", [&](const Element& tb) {
      const int number = static_cast<int>(gpu.blocks.size());
      require(tb.number("id", 0, number) == number, "{}: expected tb {}", tb.name(), number);
      Block block{.name = tb.name(),
                  .send_to = tb.number("send", -1, gpus - 1),
                  .receive_from = tb.number("recv", -1, gpus - 1),
                  .channel = tb.number("chan", -1, most_chunks)};
      tb.each("step", "s", [&](const Element& step) { add_step(step, gpu, program, block); });
      gpu.blocks.push_back(std::move(block));
    });
    program.gpus.push_back(std::move(gpu));
  });
  require(static_cast<int>(program.gpus.size()) == gpus,
          "{}: ngpus is {}, but there are {} elements <gpu>", algo.name(), gpus,
          program.gpus.size());
  return {program.collective, schedules_of(program)};
}

}  // namespace ringside::collectives

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "collectives/exchange/msccl_xml.hpp"

namespace ringside::collectives {
namespace {

// What MSCCL holds (its msccl.h): a block's steps, a GPU's blocks on a channel, a step's chunks.
constexpr std::size_t most_steps = 256, most_blocks = 32;
constexpr int most_chunks = 71;

struct Place {
  char buffer;
  int first;
};

struct Line {
  const char* type;
  Place source, target;
  int count;
  int after_block = -1, after_step = -1;
  bool is_awaited = false;
};

struct Block {
  int send_to = -1, receive_from = -1;
  std::vector<Line> lines = {};
};

// Whether each original input that is sent is still in the buffer then.
bool keeps_input(const Schedule& schedule) {
  std::vector<bool> changed(static_cast<std::size_t>(schedule.chunks));
  for (const Step& step : schedule.steps) {
    if (step.send && step.send->input)
      for (int i = 0; i < step.send->chunks.count; ++i)
        if (changed[step.send->taken().at(i)]) return false;
    if (step.receive)
      for (int i = 0; i < step.receive->chunks.count; ++i)
        changed[step.receive->chunks.at(i)] = true;
  }
  return true;
}

// One GPU's part. Its lines are in one order, that of the schedule: a line waits for the one before
// it where that stands in another block. So no line waits for two, which MSCCL could only say by a
// nop, and nops shift the numbers that its compiler and its interpreter give to steps.
class Writer {
 public:
  // Without `in_place` the input stays as it is: what the output needs of it is copied first.
  Writer(int rank, const std::vector<Schedule>& all, bool in_place, char output)
      : rank_(rank), all_(all), mine_(all[rank]), in_place_(in_place), output_(output) {}

  std::vector<Block> write() {
    for (const Step& step : mine_.steps) {  // the nth block sends to the nth peer and receives
      if (step.send && step.send->to != rank_) block_for(step.send->to, &Block::send_to);
      if (step.receive && step.receive->from != rank_)
        block_for(step.receive->from, &Block::receive_from);
    }
    require(blocks_.size() <= most_blocks, "rank {} has {} peers: MSCCL takes up to {}", rank_,
            blocks_.size(), most_blocks);
    if (!in_place_) copy_input();
    for (std::size_t s = 0; s < mine_.steps.size(); ++s) write_step(s);
    for (const Block& block : blocks_)
      require(block.lines.size() < most_steps,
              "a block of rank {} has {} steps: MSCCL takes up to {}", rank_, block.lines.size(),
              most_steps - 1);
    return std::move(blocks_);
  }

 private:
  std::size_t block_for(int peer, int Block::*side) {
    auto found = std::ranges::find(blocks_, peer, side);
    if (found == blocks_.end()) found = std::ranges::find(blocks_, -1, side);
    if (found == blocks_.end()) found = blocks_.insert(found, Block{});
    (*found).*side = peer;
    return static_cast<std::size_t>(found - blocks_.begin());
  }

  // The chunks that are read, or end, as the rank has put them there.
  void copy_input() {
    std::vector<bool> used(static_cast<std::size_t>(mine_.chunks), true), seen(used.size());
    const auto first_use = [&](int chunk, bool reads) {
      if (!seen[chunk]) used[chunk] = reads;
      seen[chunk] = true;
    };
    for (const Step& step : mine_.steps) {
      if (step.send && !step.send->input)
        for (int i = 0; i < step.send->chunks.count; ++i) first_use(step.send->taken().at(i), true);
      if (step.receive)
        for (int i = 0; i < step.receive->chunks.count; ++i)
          first_use(step.receive->chunks.at(i), step.receive->action == Action::add);
    }
    for (int c = 0; c < mine_.chunks; ++c)
      if (used[c]) add(0, {"cpy", {'i', c}, {'o', c}, 1});
  }

  // Pieces are sent and received in turn, so that neither end of a connection holds up the other.
  void write_step(std::size_t s) {
    std::vector<Line> sends, receives;
    const Step& step = mine_.steps[s];
    if (step.send) {
      const char from = step.send->input && !in_place_ ? 'i' : output_;
      const ChunkRange taken = step.send->taken(), named = step.send->chunks;
      const bool adds = step.receive && step.receive->action == Action::add;
      const char* type = step.send->to != rank_ ? "s" : adds ? "re" : "cpy";
      for (const auto& [i, count] : pieces_of(*step.send))
        sends.push_back({type, {from, taken.at(i)}, {output_, named.at(i)}, count});
    }
    if (step.receive && step.receive->from != rank_) {
      const char* type = step.receive->action == Action::add ? "rrc" : "r";
      // As the sender cuts it.
      for (const auto& [i, count] : pieces_of(*all_[step.receive->from].steps[s].send)) {
        const Place at{output_, step.receive->chunks.at(i)};
        receives.push_back({type, at, at, count});
      }
    }
    for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      if (i < sends.size()) {
        for (std::size_t j = 0; j < std::min(i, receives.size()); ++j)
          require(!overlap(sends[i], receives[j]),
                  "step {} of rank {} sends in pieces what it also receives: a file of MSCCL would "
                  "need scratch memory",
                  s + 1, rank_);
        add(step.send->to == rank_ ? 0 : block_for(step.send->to, &Block::send_to), sends[i]);
      }
      if (i < receives.size())
        add(block_for(step.receive->from, &Block::receive_from), receives[i]);
    }
  }

  static bool overlap(const Line& sent, const Line& received) {
    return sent.source.buffer == received.target.buffer &&
           sent.source.first < received.target.first + received.count &&
           received.target.first < sent.source.first + sent.count;
  }

  // The runs of a message, first and length, that lie side by side on both ends.
  static std::vector<std::pair<int, int>> pieces_of(const Send& send) {
    const ChunkRange taken = send.taken(), named = send.chunks;
    std::vector<std::pair<int, int>> found;
    for (int i = 0; i < named.count; ++i) {
      const bool goes_on = !found.empty() && found.back().second < most_chunks &&
                           taken.at(i) == taken.at(i - 1) + 1 && named.at(i) == named.at(i - 1) + 1;
      if (goes_on)
        ++found.back().second;
      else
        found.emplace_back(i, 1);
    }
    return found;
  }

  void add(std::size_t block, Line line) {
    if (blocks_.empty()) blocks_.emplace_back();
    if (last_ && *last_ != block) {
      Block& before = blocks_[*last_];
      before.lines.back().is_awaited = true;
      line.after_block = static_cast<int>(*last_);
      line.after_step = static_cast<int>(before.lines.size()) - 1;
    }
    blocks_[block].lines.push_back(line);
    last_ = block;
  }

  const int rank_;
  const std::vector<Schedule>& all_;
  const Schedule& mine_;
  const bool in_place_;
  const char output_;  // the buffer in which the schedule runs: i or o
  std::vector<Block> blocks_;
  std::optional<std::size_t> last_;  // the block of the line before
};

}  // namespace

std::string write_msccl(const std::string& name, Collective collective,
                        const std::vector<Schedule>& schedules) {
  using enum Collective;
  static const std::map<Collective, const char*> names = {{all_reduce, "allreduce"},
                                                          {all_gather, "allgather"},
                                                          {reduce_scatter, "reduce_scatter"},
                                                          {all_to_all, "alltoall"}};
  require(names.contains(collective),
          "MSCCL's files are for all_reduce, all_gather, reduce_scatter and all_to_all, not for {}",
          name_of(collective));
  const int ranks = static_cast<int>(schedules.size()), chunks = schedules[0].chunks;
  const bool in_place = collective != all_to_all && std::ranges::all_of(schedules, keeps_input);
  require(in_place || collective != reduce_scatter,
          "this reduce_scatter sends input that it has added to before: a file of MSCCL would need "
          "scratch memory");

  std::string text = fmt::format(
      "<algo name=\"{}\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{}\" ngpus=\"{}\" "
      "coll=\"{}\" inplace=\"{}\">\n",
      name, chunks, ranks, names.at(collective), in_place ? 1 : 0);
  for (int r = 0; r < ranks; ++r) {
    const bool gathers = collective == all_gather, scatters = collective == reduce_scatter;
    text += fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"0\">\n", r,
                        gathers ? chunks / ranks : chunks, scatters ? chunks / ranks : chunks);
    const std::vector<Block> blocks =
        Writer(r, schedules, in_place, in_place && !gathers ? 'i' : 'o').write();
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      text += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"0\">\n", b,
                          blocks[b].send_to, blocks[b].receive_from);
      for (std::size_t s = 0; s < blocks[b].lines.size(); ++s) {
        const Line& line = blocks[b].lines[s];
        text += fmt::format(
            "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" "
            "dstoff=\"{}\" cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
            s, line.type, line.source.buffer, line.source.first, line.target.buffer,
            line.target.first, line.count, line.after_block, line.after_step,
            line.is_awaited ? 1 : 0);
      }
      text += "    </tb>\n";
    }
    text += "  </gpu>\n";
  }
  return text + "</algo>\n";
}

}  // namespace ringside::collectives

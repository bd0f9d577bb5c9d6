#include "collectives/exchange/msccl_program.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"

namespace ringside::collectives::msccl {
namespace {

using Kind = Instruction::Kind;

// What a GPU holds in a chunk of the whole buffer.
struct Chunk {
  bool is_input = true;  // it still holds the input of this rank
  bool readable = true;  // something is in it: the output begins empty where i and o differ
  int version = 0;       // how often it was written
};

// Where data can be sent from.
struct Source {
  int gpu = -1;  // -1: nothing
  int chunk = 0;
  bool input = false;     // the rank's input, which does not change
  bool original = false;  // equal to the input, so far
  int version = 0;
};

struct Position {
  int gpu, block;
  auto operator<=>(const Position&) const = default;
};

// A message of one step of the schedules.
struct Message {
  Source source;
  int to, chunk, count;
  const Instruction* into;         // what receives or copies it; nullptr: it is parked
  std::vector<Position> advances;  // the blocks that do an instruction: the sender's comes first
  int parks = -1;                  // the place of s that it is parked for
};

class Lockstep {
 public:
  explicit Lockstep(const Program& program) : program_(program) {
    for (const Gpu& gpu : program.gpus) {
      states_.emplace_back(program.chunks);
      scratch_.emplace_back();
      next_.emplace_back(gpu.blocks.size(), 0);
      schedules_.push_back({.chunks = program.chunks, .steps = {}});
      for (int c = 0; c < program.chunks; ++c) {
        const bool given =
            program.collective != Collective::all_gather || c / program.parts == gpu.id;
        states_.back()[c] = {.is_input = given, .readable = given && program.in_place};
      }
    }
    match();
  }

  std::vector<Schedule> run() {
    while (true) {
      while (local_step()) {
      }
      choose_messages();
      if (chosen_.empty()) break;
      apply_messages();
    }
    for (const Gpu& gpu : program_.gpus)
      for (int b = 0; b < static_cast<int>(gpu.blocks.size()); ++b)
        if (const Instruction* const stuck = head({gpu.id, b}))
          fail("{} never begins: its peer, or the step that it waits for, waits as well",
               stuck->where);
    return std::move(schedules_);
  }

 private:
  const Block& block(Position at) const { return program_.gpus[at.gpu].blocks[at.block]; }
  std::size_t& next(Position at) { return next_[at.gpu][at.block]; }

  // The instruction that the block is at; nullptr at its end.
  const Instruction* head(Position at) {
    const auto& instructions = block(at).instructions;
    return next(at) < instructions.size() ? &instructions[next(at)] : nullptr;
  }

  // The nth send from one GPU to another on a channel is the nth receive there.
  void match() {
    struct Half {
      Position at;
      std::size_t index;
    };
    std::map<std::tuple<int, int, int>, std::vector<Half>> sends, receives;  // [from, to, channel]
    std::map<std::tuple<int, int, int, bool>, std::string> owners;
    for (const Gpu& gpu : program_.gpus)
      for (int b = 0; b < static_cast<int>(gpu.blocks.size()); ++b) {
        const Block& block = gpu.blocks[b];
        for (std::size_t i = 0; i < block.instructions.size(); ++i) {
          const Instruction& each = block.instructions[i];
          if (each.after_block >= 0)
            require(each.after_block < static_cast<int>(gpu.blocks.size()) &&
                        each.after_step < gpu.blocks[each.after_block].steps,
                    "{}: there is no step {} of tb {} to wait for", each.where, each.after_step,
                    each.after_block);
          if (each.kind != Kind::send && each.kind != Kind::receive) continue;
          const bool sends_it = each.kind == Kind::send;
          const std::tuple link{sends_it ? gpu.id : block.receive_from,
                                sends_it ? block.send_to : gpu.id, block.channel};
          const auto [owner, is_new] =
              owners.try_emplace(std::tuple_cat(link, std::tuple(sends_it)), block.name);
          require(is_new || owner->second == block.name,
                  "{} and {} both {} gpu {} on channel {}: only one may", owner->second, block.name,
                  sends_it ? "send to" : "receive from",
                  sends_it ? block.send_to : block.receive_from, block.channel);
          (sends_it ? sends : receives)[link].push_back({{gpu.id, b}, i});
        }
      }
    for (const auto& [link, list] : sends) {
      const auto& [from, to, channel] = link;
      const std::size_t there = receives[link].size();
      require(list.size() == there,
              "gpu {} sends {} messages to gpu {} on channel {}, which expects {}", from,
              list.size(), to, channel, there);
    }
    for (const auto& [link, list] : receives) {
      const auto& [from, to, channel] = link;
      const auto& out = sends[link];
      require(list.size() == out.size(),
              "gpu {} expects {} messages from gpu {} on channel {}, which sends {}", to,
              list.size(), from, channel, out.size());
      for (std::size_t n = 0; n < list.size(); ++n) {
        const Instruction &sent = block(out[n].at).instructions[out[n].index],
                          &received = block(list[n].at).instructions[list[n].index];
        require(sent.count == received.count, "{} sends {} chunks, but {} receives {}", sent.where,
                sent.count, received.where, received.count);
        receiver_[{out[n].at, out[n].index}] = {list[n].at, list[n].index};
      }
    }
  }

  // Whether a step of the same GPU is done. With `reads` a send that this round has chosen counts:
  // a rank sends what it held before the step.
  bool is_done(int gpu, int block_number, int step, bool reads) {
    const Position at{gpu, block_number};
    const Instruction* const now = head(at);
    if (now == nullptr || now->step > step) return true;
    const bool is_last_part = next(at) + 1 == block(at).instructions.size() ||
                              block(at).instructions[next(at) + 1].step > step;
    return reads && now->step == step && now->kind == Kind::send && is_last_part &&
           (is_sending(at) || choose_send(at));
  }
  bool may_begin(int gpu, const Instruction& each, bool reads) {
    return each.after_block < 0 || is_done(gpu, each.after_block, each.after_step, reads);
  }

  // What is at a place of a GPU.
  Source read(int gpu, const Instruction& each) {
    const Place& place = *each.source;
    if (place.buffer == 's') {
      const auto& scratch = scratch_[gpu];
      const auto at = [&](int i) {
        const auto found = scratch.find(place.first + i);
        return found == scratch.end() ? Source{} : found->second;
      };
      const Source source = at(0);
      require(source.gpu >= 0, "{} reads s[{}], which nothing has written", each.where,
              place.first);
      for (int i = 0; i < each.count; ++i) {
        const Source part = at(i);
        require(
            part.gpu == source.gpu && part.input == source.input && part.chunk == source.chunk + i,
            "{} reads s[{}] and s[{}], which do not come from one place: divide the step",
            each.where, place.first, place.first + i);
        require(part.input || states_[part.gpu][part.chunk].version == part.version,
                "{} needs what gpu {} sent to s[{}] earlier: a schedule has no scratch memory, and "
                "gpu {} no longer holds it",
                each.where, part.gpu, place.first + i, part.gpu);
      }
      return source;
    }
    Source source{.gpu = gpu, .chunk = chunk_of(gpu, each, place)};
    source.input = place.buffer == 'i' && !program_.in_place && !each.forwards;
    source.version = states_[gpu][source.chunk].version;
    source.original = true;
    for (int i = 0; i < each.count; ++i) {
      const Chunk& there = states_[gpu][source.chunk + i];
      require(source.input ? has_input(gpu, source.chunk + i) : there.readable,
              "{} reads {}[{}], which nothing has written", each.where, place.buffer,
              place.first + i);
      source.original = source.original && (source.input || there.is_input);
    }
    return source;
  }

  bool has_input(int gpu, int chunk) const {
    return program_.collective != Collective::all_gather || chunk / program_.parts == gpu;
  }

  int chunk_of(int gpu, const Instruction& each, const Place& place) const {
    const int chunk = program_.chunk_of(gpu, place);
    require(chunk + each.count <= program_.chunks,
            "{}: {}[{}] is outside of the buffer of {} chunks (nchunksperloop)", each.where,
            place.buffer, place.first + each.count - 1, program_.chunks);
    return chunk;
  }

  Message message_to(int gpu, const Instruction& each, const Source& source) const {
    return {source, gpu, chunk_of(gpu, each, *each.target), each.count, &each, {}};
  }

  // Throws unless the message can be written, or added, to its target.
  void require_target(const Message& message) const {
    const Instruction& each = *message.into;
    const Place& target = *each.target;
    require(target.buffer == 'o' || program_.in_place || each.discards,
            "{} writes to i, but the algorithm is not in place (inplace=\"1\")", each.where);
    for (int i = 0; i < each.count && each.adds; ++i) {
      const Chunk& there = states_[message.to][message.chunk + i];
      // Out of place o may be empty: then what arrives is added to the input, if that is meant.
      const bool adds_to_input =
          each.kind == Kind::receive && each.source->buffer == 'i' && there.is_input;
      require(there.readable || adds_to_input, "{} adds to {}[{}], which nothing has written",
              each.where, target.buffer, target.first + i);
    }
  }

  // Does what needs no message: a nop, what goes to scratch, a copy of a chunk to itself. Returns
  // whether any block went on.
  bool local_step() {
    bool went_on = false;
    for (const Gpu& gpu : program_.gpus)
      for (int b = 0; b < static_cast<int>(gpu.blocks.size()); ++b)
        while (local_instruction({gpu.id, b})) went_on = true;
    return went_on;
  }

  bool local_instruction(Position at) {
    const Instruction* const each = head(at);
    if (each == nullptr || !may_begin(at.gpu, *each, false)) return false;
    if (each->kind == Kind::send) {
      const auto& [there, index] = receiver_.at({at, next(at)});
      if (block(there).instructions[index].target->buffer != 's') return false;
      const Source source = read(at.gpu, *each);
      if (source.gpu != at.gpu) return false;  // park() first
      on_the_way_[{there, index}] = source;
    } else if (each->kind == Kind::receive) {
      const auto arrived = on_the_way_.find({at, next(at)});
      if (arrived == on_the_way_.end()) return false;
      require(!each->adds, "{} adds to scratch memory, which a schedule does not have",
              each->where);
      keep_in_scratch(at.gpu, *each, arrived->second);
    } else if (each->kind == Kind::copy) {
      const Source source = read(at.gpu, *each);
      if (each->target->buffer == 's') {
        require(!each->adds, "{} adds to scratch memory, which a schedule does not have",
                each->where);
        keep_in_scratch(at.gpu, *each, source);
      } else if (each->adds || !is_there(at.gpu, *each, source)) {
        return false;
      }
    }
    ++next(at);
    return true;
  }

  void keep_in_scratch(int gpu, const Instruction& each, Source source) {
    auto& scratch = scratch_[gpu];
    source.input = source.input || source.original;
    for (int i = 0; i < each.count; ++i, ++source.chunk) {
      source.version = states_[source.gpu][source.chunk].version;
      scratch[each.target->first + i] = source;
    }
  }

  // Whether a copy changes nothing, because our one buffer begins as the input.
  bool is_there(int gpu, const Instruction& each, const Source& source) {
    const int chunk = chunk_of(gpu, each, *each.target);
    if (source.gpu != gpu || source.chunk != chunk) return false;
    for (int i = 0; i < each.count; ++i)
      if (source.input && !states_[gpu][chunk + i].is_input) return false;
    for (int i = 0; i < each.count; ++i) states_[gpu][chunk + i].readable = true;
    return true;
  }

  // Chooses messages of this step: at most one from each rank, and one to each.
  void choose_messages() {
    chosen_.clear();
    sends_.assign(program_.gpus.size(), false);
    receives_.assign(program_.gpus.size(), false);
    for (const Gpu& gpu : program_.gpus)
      for (int b = 0; b < static_cast<int>(gpu.blocks.size()); ++b) {
        const Position at{gpu.id, b};
        const Instruction* const each = head(at);
        if (each == nullptr) continue;
        if (each->kind == Kind::send && !is_sending(at) && !park(gpu.id, *each)) choose_send(at);
        if (each->kind == Kind::copy && may_begin(gpu.id, *each, false))
          choose(message_to(gpu.id, *each, read(gpu.id, *each)), {at});
      }
  }

  // A GPU that forwards from s must hold what arrived there. A schedule has no memory for it but
  // chunks that are empty so far: of them the first that are free, best those of the same number,
  // where it often belongs anyway. Returns whether the GPU does not hold it yet.
  bool park(int gpu, const Instruction& each) {
    if (each.source->buffer != 's' || !may_begin(gpu, each, false)) return false;
    const Source source = read(gpu, each);
    if (source.gpu == gpu) return false;
    std::vector<int> places{source.chunk};
    for (int chunk = 0; chunk + each.count <= program_.chunks; ++chunk) places.push_back(chunk);
    const auto place = std::find_if(places.begin(), places.end(),
                                    [&](int p) { return is_free(gpu, p, each.count); });
    require(place != places.end(),
            "{} forwards from s[{}]: a schedule has no scratch memory, and no chunks of gpu {} are "
            "empty that could hold it",
            each.where, each.source->first, gpu);
    choose({source, gpu, *place, each.count, nullptr, {}, each.source->first}, {});
    return true;
  }

  bool is_free(int gpu, int first, int count) const {
    for (int chunk = first; chunk < first + count; ++chunk) {
      if (states_[gpu][chunk].readable) return false;
      for (const auto& scratch : scratch_)
        for (const auto& [place, source] : scratch)
          if (source.gpu == gpu && source.chunk == chunk && !source.input &&
              source.version == states_[gpu][chunk].version)
            return false;
    }
    return true;
  }

  // Chooses the send that a block is at, if its receiver is ready or gets ready by sends of this
  // step: two GPUs that exchange chunks both send first. Otherwise chooses nothing.
  bool choose_send(Position at) {
    const Instruction& sent = *head(at);
    const auto to_scratch = [&] {
      const auto& [there, index] = receiver_.at({at, next(at)});
      return block(there).instructions[index].target->buffer == 's';
    };
    if (sent.kind != Kind::send || !may_begin(at.gpu, sent, false) || to_scratch()) return false;
    const Source source = read(at.gpu, sent);
    if (source.gpu != at.gpu) return false;  // park() first
    const auto& [there, index] = receiver_.at({at, next(at)});
    const Instruction& received = block(there).instructions[index];
    const std::size_t before = chosen_.size();
    // Chosen first, so that a circle of exchanges ends here.
    if (!choose(message_to(there.gpu, received, source), {at, there})) return false;
    const bool is_next = next(there) == index;
    const bool sends_first = next(there) + 1 == index && head(there)->kind == Kind::send &&
                             (is_sending(there) || choose_send(there));
    if ((is_next || sends_first) && may_begin(there.gpu, received, true)) return true;
    while (chosen_.size() > before) {
      sends_[chosen_.back().source.gpu] = receives_[chosen_.back().to] = false;
      chosen_.pop_back();
    }
    return false;
  }

  // Whether the send that a block is at is chosen.
  bool is_sending(Position at) const {
    return std::any_of(chosen_.begin(), chosen_.end(), [&](const Message& message) {
      return message.into && message.advances.front() == at;
    });
  }

  bool choose(Message message, std::vector<Position> advances) {
    if (sends_[message.source.gpu] || receives_[message.to]) return false;
    sends_[message.source.gpu] = receives_[message.to] = true;
    message.advances = std::move(advances);
    chosen_.push_back(std::move(message));
    return true;
  }

  void apply_messages() {
    for (Schedule& schedule : schedules_) schedule.steps.emplace_back();
    for (const Message& message : chosen_) {
      if (message.into) require_target(message);
      add_to_schedules(message);
    }
    for (const Message& message : chosen_)
      if (message.into && head(message.advances.front())->discards)
        for (int i = 0; i < message.count; ++i)
          states_[message.source.gpu][message.source.chunk + i].readable = false;
    for (const Message& message : chosen_) {
      for (int i = 0; i < message.count; ++i) {
        Chunk& there = states_[message.to][message.chunk + i];
        there = {
            .is_input = false, .readable = message.into != nullptr, .version = there.version + 1};
        if (!message.into)
          scratch_[message.to][message.parks + i] = {
              .gpu = message.to, .chunk = message.chunk + i, .version = there.version};
      }
      for (const Position at : message.advances) ++next(at);
    }
  }

  void add_to_schedules(const Message& message) {
    const Source& source = message.source;
    const ChunkRange chunks{message.chunk, message.count};
    Send send{.to = message.to, .chunks = chunks};
    if (source.input) send.input = source.chunk;
    if (!source.input && source.chunk != message.chunk) send.held = source.chunk;
    schedules_[source.gpu].steps.back().send = send;
    schedules_[message.to].steps.back().receive =
        Receive{.from = source.gpu,
                .chunks = chunks,
                .action = message.into && message.into->adds ? Action::add : Action::overwrite};
  }

  const Program& program_;
  std::map<std::pair<Position, std::size_t>, std::pair<Position, std::size_t>> receiver_;
  std::map<std::pair<Position, std::size_t>, Source> on_the_way_;  // to scratch, by its receive
  std::vector<std::vector<std::size_t>> next_;                     // [gpu][block]
  std::vector<std::vector<Chunk>> states_;                         // [gpu][chunk]
  std::vector<std::map<int, Source>> scratch_;                     // [gpu][chunk of s]
  std::vector<Message> chosen_;                                    // of this step
  std::vector<bool> sends_, receives_;  // [gpu] whether a message of this step is its
  std::vector<Schedule> schedules_;
};

}  // namespace

int Program::chunk_of(int gpu, const Place& place) const {
  const bool block_alone = (collective == Collective::all_gather && place.buffer == 'i') ||
                           (collective == Collective::reduce_scatter && place.buffer == 'o');
  return place.first + (block_alone ? gpu * parts : 0);
}

bool Program::is_same(int gpu, const Place& a, const Place& b) const {
  if (a.buffer == 's' || b.buffer == 's') return a.buffer == b.buffer && a.first == b.first;
  return chunk_of(gpu, a) == chunk_of(gpu, b);
}

std::vector<Schedule> schedules_of(const Program& program) {
  return Lockstep(program).run();
}

}  // namespace ringside::collectives::msccl

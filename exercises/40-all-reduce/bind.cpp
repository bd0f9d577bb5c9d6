// Compiled with the student's files each time that they change.
#include <cstdlib>

#include "collectives.hpp"
#include "exercises/40-all-reduce/interface.hpp"

namespace ringside::exercises {
namespace {

namespace written = student::collectives::one_sided;
using gpu::Peers, gpu::PeersMemory, gpu::PeersRun, gpu::PeersSeen, gpu::PeersTeam;

// What lies in the memory of a GPU, and what its host shares with it.
struct Device {
  written::Mailbox mailbox;
  written::HostWords host;
  std::vector<float> input, output;
  std::unique_ptr<written::PacketBox, void (*)(void*)> box{nullptr, std::free};
};

class World {
 public:
  World(const PeersRun& run, bool packets) : run_(run), packets_(packets), peers_(run) {
    for (int rank = 0; rank < run.ranks; ++rank) {
      Device& device = *devices_.emplace_back(std::make_unique<Device>());
      device.input.resize(run.count + run.offset);
      device.output.resize(run.count + run.offset);
      mailboxes_.push_back(&device.mailbox);
      if (packets)
        add_box(rank);
      else
        add_buffers(rank);
      for (int block = 0; block < run.blocks; ++block)
        for (int from = 0; from < run.ranks; ++from)
          peers_.add_words(rank, &device.mailbox.channels[block][from].published,
                           sizeof(written::Flag), [from](std::size_t, std::uint64_t value) {
                             return fmt::format("the flag of rank {}, which is {}", from, value);
                           });
    }
  }

  PeersSeen seen() {
    const auto ranks = static_cast<std::size_t>(run_.ranks);
    seen_.returned.assign(ranks, false);
    seen_.outputs.resize(ranks * static_cast<std::size_t>(run_.calls));
    peers_.run([this](int rank, int block, int thread) { calls(rank, block, thread); },
               [this] {
                 if (run_.stopped >= 0) peers_.set_word(&of(run_.stopped).host.stop.value, 4, 1);
               });
    seen_.fault = peers_.fault();
    for (int rank = 0; rank < run_.ranks; ++rank) {
      const written::HostWords& host = of(rank).host;
      seen_.loads.push_back(peers_.loads_of(rank));
      seen_.stores.push_back(peers_.stores_of(rank));
      seen_.gave_up.push_back(word(host.gave_up.value) != 0);
      seen_.waiting_for.push_back(word(host.stall.waiting_for));
      seen_.number.push_back(word(host.stall.number));
    }
    return std::move(seen_);
  }

 private:
  Device& of(int rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  written::Number word(const written::Number& at) {
    return static_cast<written::Number>(peers_.word(&at, sizeof at));
  }

  void add_buffers(int rank) {
    Device& device = of(rank);
    float* const input = device.input.data() + run_.offset;
    float* const output = run_.in_place ? input : device.output.data() + run_.offset;
    const std::string owner = fmt::format("rank {}'s ", rank);
    peers_.add_data(owner + (run_.in_place ? "buffer" : "input"), rank, input, run_.count);
    if (!run_.in_place) peers_.add_data(owner + "output", rank, output, run_.count);
    buffers_.input[rank] = input, buffers_.output[rank] = output;
  }

  void add_box(int rank) {
    Device& device = of(rank);
    device.box.reset(static_cast<written::PacketBox*>(std::calloc(1, sizeof(written::PacketBox))));
    boxes_.push_back(device.box.get());
    peers_.add_words(rank, device.box.get(), sizeof(written::PacketBox),
                     [](std::size_t offset, std::uint64_t value) {
                       const std::size_t packet = offset / sizeof(written::Packet);
                       return fmt::format(
                           "packet {} of rank {}: in half {} of its box there is number {}",
                           packet % written::most_packets,
                           packet / written::most_packets % written::most_ranks,
                           packet / written::most_packets / written::most_ranks, value >> 32);
                     });
  }

  void calls(int rank, int block, int thread) {
    Device& device = of(rank);
    const bool leads = block == 0 && thread == 0;
    const PeersTeam team{thread, run_.threads};
    written::BlockContext context;
    context.rank = rank, context.size = run_.ranks;
    context.block = block, context.blocks = run_.blocks;
    context.patience =
        std::uint64_t{20000} * static_cast<std::uint64_t>(run_.ranks * run_.blocks * run_.threads);
    context.mailboxes = mailboxes_.data(), context.host = &device.host;
    if (run_.missing < 0 || run_.stopped >= 0) context.patience = std::uint64_t{1} << 60;
    for (int call = 0; call < run_.calls; ++call) {
      if (leads) write_input(rank, call);
      peers_.launch();
      const bool last = call + 1 == run_.calls;
      if (rank == run_.missing && last) return;
      peers_.in_student_code(true);
      const bool right = all_reduce(team, context, call);
      peers_.in_student_code(false);
      if (last && right) seen_.returned[static_cast<std::size_t>(rank)] = true;
      if (!right && (run_.missing < 0 || !last))
        peers_.fail_here(
            fmt::format("rank {} returns false from call {}, and no rank is lost", rank, call + 1));
      peers_.launch();
      if (leads && (run_.missing < 0 || !last)) read_output(rank, call);
      peers_.launch();
    }
  }

  bool all_reduce(const PeersTeam& team, const written::BlockContext& context, int call) {
    if (!packets_) {
      const written::Range mine =
          written::stripe<float>({0, run_.count}, context.block, context.blocks);
      return written::two_shot_all_reduce<PeersMemory>(team, context, buffers_, mine,
                                                       scale_of_sums);
    }
    Device& device = of(context.rank);
    return written::one_shot_all_reduce<PeersMemory>(
        team, context, device.input.data(), device.output.data(), run_.count, boxes_.data(),
        static_cast<written::Number>(call + 1), scale_of_sums);
  }

  void write_input(int rank, int call) {
    for (std::size_t i = 0; i < run_.count; ++i) {
      const float value = run_.input(rank, call, i);
      if (packets_)
        of(rank).input[i] = value;
      else
        peers_.store(const_cast<float*>(buffers_.input[rank]) + i, 1, &value);
    }
  }

  void read_output(int rank, int call) {
    std::vector<float>& values = seen_.outputs[static_cast<std::size_t>(call * run_.ranks + rank)];
    values = of(rank).output;
    if (packets_) return;
    values.resize(run_.count);
    for (std::size_t i = 0; i < run_.count; ++i)
      peers_.load(buffers_.output[rank] + i, 1, &values[i]);
  }

  PeersRun run_;
  bool packets_;
  Peers peers_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<written::Mailbox*> mailboxes_;
  written::Buffers<float> buffers_;
  std::vector<written::PacketBox*> boxes_;
  PeersSeen seen_;
};

[[maybe_unused]] const bool bound = student_two_shot.bind([](const PeersRun& run) {
  return World(run, false).seen();
}) && student_one_shot.bind([](const PeersRun& run) { return World(run, true).seen(); });

}  // namespace
}  // namespace ringside::exercises

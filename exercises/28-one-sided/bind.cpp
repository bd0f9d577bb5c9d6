// Compiled with the student's files each time that they change.
#include "collectives.hpp"
#include "exercises/28-one-sided/interface.hpp"
#include "exercises/judge/collectives/one_sided_runs.hpp"
#include "protocol.hpp"

namespace ringside::exercises {
namespace {

namespace written = student::collectives::one_sided;

struct Protocol {
  using Channel = written::Channel;
  using Mailbox = written::Mailbox;
  using HostWords = written::HostWords;
  using BlockContext = written::BlockContext;
  using Buffers = written::Buffers<float>;
  using Memory = written::HostMemory;
  struct Yielding : written::HostSide {
    static void pause() { std::this_thread::yield(); }
  };

  template <class M>
  static bool slot_is_free(const Channel& channel, Number number, Number slots) {
    return written::slot_is_free<M>(channel, number, slots);
  }
  template <class M>
  static void publish(Channel& channel, Number number) {
    written::publish<M>(channel, number);
  }
  template <class M>
  static bool has_arrived(const Channel& channel, Number number) {
    return written::has_arrived<M>(channel, number);
  }
  template <class M>
  static void free_slot(Channel& channel, Number number) {
    written::free_slot<M>(channel, number);
  }
  static bool two_shot(const SlowTeam& team, const BlockContext& context, const Buffers& buffers,
                       std::size_t count, float scale) {
    const written::Range mine = written::stripe<float>({0, count}, context.block, context.blocks);
    return written::two_shot_all_reduce<Yielding>(team, context, buffers, mine, scale);
  }
};

bool reached(Number count, Number number) {
  return written::reached(count, number);
}
bool has_arrived(Number published, Number number) {
  Protocol::Channel channel;
  channel.published.value = published;
  return written::has_arrived<Protocol::Memory>(channel, number);
}
bool slot_is_free(Number released, Number number, Number slots) {
  Protocol::Channel channel;
  channel.released.value = released;
  return written::slot_is_free<Protocol::Memory>(channel, number, slots);
}

[[maybe_unused]] const bool bound =
    student_reached.bind(reached) && student_has_arrived.bind(has_arrived) &&
    student_slot_is_free.bind(slot_is_free) && student_orders.bind(orders_of<Protocol>) &&
    student_wrong_words.bind(wrong_words<Protocol>) &&
    student_wrong_sums.bind(wrong_sums<Protocol>);

}  // namespace
}  // namespace ringside::exercises

#include "collectives/transport/threads.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace ringside::collectives {

namespace {
struct Letter {
  MessageHeader header;
  std::span<const std::byte> payload;
};

// From one rank to another, in order. `taken` letters have been released by the receiver since the
// world began.
struct Channel {
  std::deque<Letter> letters;
  std::uint64_t taken = 0;
  bool in_hand = false;  // the receiver is reading the front letter's payload
};
}  // namespace

class ThreadsWorld {
 public:
  explicit ThreadsWorld(int ranks)
      : size(ranks),
        channels(ranks * ranks),
        changed(ranks),
        left(ranks, false),
        positions(ranks) {}

  Channel& channel(int from, int to) { return channels[from * size + to]; }

  const int size;
  std::mutex mutex;  // guards everything below
  std::vector<Channel> channels;
  std::vector<std::condition_variable> changed;  // [rank] something that concerns this rank
  std::vector<bool> left;
  std::vector<Position> positions;
  std::optional<RankFailure> failure;  // the first cause
  std::map<std::string, std::shared_ptr<ThreadsWorld>> sub_worlds;
};

namespace {

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<ThreadsWorld> world, int rank)
      : Transport(rank, world->size), world_(std::move(world)) {}

  ~ThreadsTransport() override {
    const std::lock_guard lock(world_->mutex);
    world_->left[rank()] = true;
    world_->positions[rank()].made = history();
    for (int r = 0; r < size(); ++r)
      world_->channel(rank(), r).letters.clear();  // our bytes go with us: nobody may look any more
    for (auto& each : world_->changed) each.notify_all();
  }

  std::string_view name() const override { return "threads"; }
  std::uint32_t job() const override { return 0; }
  int window() const override { return 4; }

  void start_send(int peer, const MessageHeader& header,
                  std::span<const std::byte> payload) override {
    const std::lock_guard lock(world_->mutex);
    Channel& channel = world_->channel(rank(), peer);
    channel.letters.push_back({header, payload});
    awaited_.push_back({peer, channel.taken + channel.letters.size()});
    world_->changed[peer].notify_one();
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    receive_ = {peer, expected, into};
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    std::unique_lock lock(world_->mutex);
    for (;;) {
      if (auto done = look()) return done;
      const auto until =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline.remaining());
      if (world_->changed[rank()].wait_until(lock, until) == std::cv_status::timeout &&
          deadline.expired())
        return look();
    }
  }

  void release() override {
    const std::lock_guard lock(world_->mutex);
    if (in_hand()) take_letter();
  }

  void abort(const RankFailure& cause) noexcept override {
    std::unique_lock lock(world_->mutex);
    if (!world_->failure)
      world_->failure = RankFailure(
          cause.rank, fmt::format("{} (as rank {} tells)", cause.cause, rank()), cause.cause);
    if (in_hand()) take_letter();
    for (auto& each : world_->changed) each.notify_all();
    // Our caller is about to give up the memory that the others may still be reading.
    world_->changed[rank()].wait(lock, [this] { return !ours_in_hand(); });
  }

  void tell_position(const Position& mine) override {
    const std::lock_guard lock(world_->mutex);
    world_->positions[rank()] = mine;
    world_->positions[rank()].heard = Clock::now();
    world_->positions[rank()].made = history();
    for (auto& each : world_->changed) each.notify_all();
  }

  Contact open_door() override { return {}; }  // who is in the same process need not be told where

  std::unique_ptr<Transport> found(const std::string& name, int rank,
                                   const std::vector<Contact>& members) override {
    const std::lock_guard lock(world_->mutex);
    auto& sub_world = world_->sub_worlds[name];
    if (!sub_world) sub_world = make_threads_world(static_cast<int>(members.size()));
    return make_threads_transport(sub_world, rank);
  }

  std::vector<Position> positions(Seconds patience) override {
    const Deadline deadline = Deadline::after(patience);
    std::unique_lock lock(world_->mutex);
    throw_if_failed();
    while (!deadline.expired() && !all_recent(world_->positions)) {
      world_->changed[rank()].wait_for(lock, deadline.remaining());
      throw_if_failed();
    }
    return world_->positions;
  }

 private:
  struct Awaited {
    int peer;
    std::uint64_t number;  // of letters on that channel that must have been taken
  };
  struct Posted {
    int peer = -1;  // -1: none
    MessageHeader expected;
    std::span<std::byte> into;
  };

  bool in_hand() const {
    return receive_.peer >= 0 && world_->channel(receive_.peer, rank()).in_hand;
  }
  bool ours_in_hand() const {
    for (int r = 0; r < size(); ++r)
      if (world_->channel(rank(), r).in_hand) return true;
    return false;
  }

  void throw_if_failed() {
    if (world_->failure) throw *world_->failure;
  }

  std::optional<Completion> look() {
    throw_if_failed();
    if (!awaited_.empty() &&
        world_->channel(rank(), awaited_.front().peer).taken >= awaited_.front().number) {
      awaited_.pop_front();
      return Completion{Completion::sent, {}};
    }
    if (receive_.peer < 0 || in_hand()) return std::nullopt;
    Channel& channel = world_->channel(receive_.peer, rank());
    if (channel.letters.empty()) {
      if (world_->left[receive_.peer])
        throw RankFailure(receive_.peer,
                          fmt::format("rank {} has left the group, and rank {} still waits for it",
                                      receive_.peer, rank()));
      return std::nullopt;
    }
    return open_letter(channel.letters.front());
  }

  Completion open_letter(const Letter& letter) {
    check_message(receive_.expected, letter.header, rank(), receive_.peer);
    if (receive_.into.empty()) {
      world_->channel(receive_.peer, rank()).in_hand = true;
      return {Completion::received, letter.payload};
    }
    const std::span<std::byte> into = receive_.into;
    std::memcpy(into.data(), letter.payload.data(), into.size());
    take_letter();
    return {Completion::received, into};
  }

  void take_letter() {
    Channel& channel = world_->channel(receive_.peer, rank());
    if (!channel.letters.empty()) channel.letters.pop_front();
    channel.in_hand = false;
    ++channel.taken;
    world_->changed[receive_.peer].notify_one();
    receive_.peer = -1;
  }

  std::shared_ptr<ThreadsWorld> world_;
  std::deque<Awaited> awaited_;
  Posted receive_;
};

}  // namespace

std::shared_ptr<ThreadsWorld> make_threads_world(int size) {
  require(size >= 1, "a world needs at least one rank, not {}", size);
  return std::make_shared<ThreadsWorld>(size);
}

std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<ThreadsWorld> world, int rank) {
  require(rank >= 0 && rank < world->size, "rank {} is not in a world of {}", rank, world->size);
  return std::make_unique<ThreadsTransport>(std::move(world), rank);
}

}  // namespace ringside::collectives

// What only shared memory has: messages longer than a piece, the room for them, and ranks that
// sleep until a peer wakes them.
#include "collectives/bootstrap/connect.hpp"

#include <algorithm>
#include <random>
#include <thread>

#include "base/random.hpp"
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/transport/shm/announcement.hpp"
#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// A world whose pieces are shorter than the executor's slices.
std::vector<std::string> run_narrow(int size, const ShmOptions& narrow, const Body& body) {
  const auto port = free_port();
  return on_threads(size, [&](int rank) {
    ProcessGroup group(make_schedule_backend(connect_shm(rank_info_of(rank, size, port), narrow)));
    body(group);
  });
}

void all_equal(std::span<const float> seen, float wanted, const char* what) {
  for (const float x : seen) require(x == wanted, "{}: {} instead of {}", what, x, wanted);
}

// Checks the collectives that send and receive, on sums of 1, 2, ..., size.
void sums_are_right(ProcessGroup& group, std::span<float> mine, std::span<float> other) {
  const auto sum = static_cast<float>(group.size() * (group.size() + 1) / 2),
             self = static_cast<float>(group.rank() + 1);
  std::fill(mine.begin(), mine.end(), self);
  group.all_reduce(std::span(mine), other);
  all_equal(other, sum, "all_reduce out of place");
  const auto block = other.first(group.block_size(mine.size(), group.rank()));
  group.reduce_scatter(std::span(mine), block);
  all_equal(block, sum, "reduce_scatter");
  group.all_gather(std::span(block), mine);
  all_equal(mine, sum, "all_gather");
  group.all_reduce(mine, ReduceOp::avg);
  all_equal(mine, sum, "all_reduce in place");
}

// A rank that waits polls for 50 microseconds before it sleeps.
void let_others_fall_asleep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Executors also wake up by themselves, to look at the control channel. Here nobody does: a rank
// that no peer wakes sleeps until the deadline.
void sleep_until_woken(Transport& transport) {
  const Deadline deadline = Deadline::after(Seconds(20));
  const bool done = transport.wait(deadline).has_value();
  require(done && !deadline.expired(), "nobody woke rank {}", transport.rank());
}

}  // namespace

TEST_CASE("messages longer than a piece travel in pieces") {
  for (const int size : {2, 3, 4})
    for (const ShmOptions narrow :
         {ShmOptions{.piece_bytes = 128, .slots = 1}, ShmOptions{.piece_bytes = 4096, .slots = 2},
          ShmOptions{.piece_bytes = 16384, .slots = 2, .room_bytes = 3 * 16384}}) {
      const auto outcomes = run_narrow(size, narrow, [](ProcessGroup& group) {
        for (const std::size_t count : {1, 31, 33, 4000, 40001}) {
          std::vector<float> x(count), y(count);
          sums_are_right(group, x, y);
        }
      });
      for (const auto& outcome : outcomes) CHECK(outcome == "");
    }
}

TEST_CASE("with many ranks a channel has less room, then fewer slots, then shorter pieces") {
  const auto layout = [](int size) { return shm_layout({}, size); };
  constexpr std::uint32_t piece = 128 * 1024, announced = ShmOptions{}.announced_bytes;
  for (const int size : {1, 2, 3}) CHECK(layout(size) == ShmLayout{piece, 4, 2u << 20, announced});
  CHECK(layout(5) == ShmLayout{piece, 4, 1u << 20, announced});
  for (const int size : {8, 17}) CHECK(layout(size) == ShmLayout{piece, 4, 4 * piece, announced});
  for (const int size : {18, 20, 33})
    CHECK(layout(size) == ShmLayout{piece, 2, 2 * piece, announced});
  CHECK(layout(65) == ShmLayout{64 * 1024, 2, piece, announced});
  for (int size = 2; size <= 512; ++size) {
    CAPTURE(size);
    const auto [piece_bytes, slots, room_bytes, announced_bytes] = layout(size);
    // Without slots, and with the rounding to 128 bytes.
    const std::size_t all = static_cast<std::size_t>(size - 1) * room_bytes;
    CHECK(all <= (8u << 20) + static_cast<std::size_t>(size) * 2 * 128);
    CHECK(piece_bytes % 128 == 0);
    CHECK(room_bytes % 128 == 0);
    CHECK(room_bytes >= slots * piece_bytes);
    CHECK(announced_bytes == announced);
  }
}

// Pieces of any length, as many under way as there are slots, in the smallest room that they go
// round: none may be overwritten before it has been read.
TEST_CASE("pieces under way do not overlap in their room") {
  constexpr std::uint32_t longest = 32 * 1024, slots = 4;
  constexpr int messages = 3000;
  const auto port = free_port();
  const auto outcomes = on_threads(2, [&](int rank) {
    const Connections connections =
        connect_shm(rank_info_of(rank, 2, port),
                    {.piece_bytes = longest, .slots = slots, .room_bytes = (slots + 1) * longest});
    Transport& transport = *connections.transport;
    const Deadline deadline = Deadline::after(Seconds(60));
    std::vector<std::vector<std::byte>> under_way(slots);
    std::mt19937 random(7);
    for (int sent = 0, done = 0; done < messages;) {
      const auto header_of = [&](int number) {
        MessageHeader header;
        header.sequence = static_cast<std::uint64_t>(number);
        header.bytes = random() % 4 == 0 ? random() % 9000 : longest - random() % 3000;
        return header;
      };
      if (rank == 0) {
        for (; sent < messages && sent - done < static_cast<int>(slots); ++sent) {
          const MessageHeader header = header_of(sent);
          auto& payload = under_way[static_cast<std::size_t>(sent) % slots];
          payload.assign(header.bytes, static_cast<std::byte>(sent));
          transport.post_send(1, header, payload);
        }
      } else {
        transport.post_receive(0, header_of(done), {});
      }
      const auto completion = transport.wait(deadline);
      require(completion.has_value(), "message {} does not arrive", done);
      for (const std::byte seen : completion->payload)
        require(seen == static_cast<std::byte>(done), "message {} is not what was sent", done);
      transport.release();
      ++done;
    }
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("ranks of one host that cannot share memory after all use TCP, also in sub-groups") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto port = free_port();
    const auto outcomes = on_threads(size, [&](int rank) {
      const ShmOptions another_layout_on_rank_1{.slots = rank == 1 ? 8u : 4u};
      ProcessGroup group(make_schedule_backend(
          connect_automatic(rank_info_of(rank, size, port), another_layout_on_rank_1)));
      require(group.backend_name() == "tcp", "the ranks are connected by {}", group.backend_name());
      ProcessGroup half = group.split(rank % 2);
      std::vector<float> x(100'000, static_cast<float>(rank + 1)), y = x;
      group.all_reduce(std::span(x));
      half.all_reduce(std::span(y));
      float sum = 0, sum_of_half = 0;
      for (int r = 0; r < size; ++r) sum += static_cast<float>(r + 1);
      for (int r = rank % 2; r < size; r += 2) sum_of_half += static_cast<float>(r + 1);
      require(x[99'999] == sum, "the sum is {}, not {}", x[99'999], sum);
      require(y[99'999] == sum_of_half, "in half it is {}, not {}", y[99'999], sum_of_half);
      group.finish();
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
}

TEST_CASE("ranks that share memory have no sockets for data") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    RankInfo rank_info = rank_info_of(rank, 3, port);
    rank_info.backend = "auto";
    const Mesh mesh = connect_mesh(rank_info);
    for (int r = 0; r < 3; ++r) {
      require(!mesh.data[r], "there is a data connection to rank {}", r);
      require(r == rank || mesh.control[r], "there is no control connection to rank {}", r);
    }
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
}

TEST_CASE("a number of slots that is not a power of two is refused") {
  CHECK_THROWS_WITH_AS(connect_shm(rank_info_of(0, 1, 1), {.piece_bytes = 4096, .slots = 3}),
                       "shared memory needs a power of two of slots, not 3 of 4096 bytes", Error);
}

TEST_CASE("a message wakes its receiver, and a freed slot its sender") {
  for (const int late : {0, 1}) {  // with one slot the sender waits for a receiver that is late
    CAPTURE(late);
    const auto port = free_port();
    const auto outcomes = on_threads(2, [&](int rank) {
      const Connections connections =
          connect_shm(rank_info_of(rank, 2, port), {.piece_bytes = 128, .slots = 1});
      Transport& transport = *connections.transport;
      const std::byte payload[8] = {};
      MessageHeader header;
      header.bytes = sizeof payload;
      for (int i = 0; i < 5; ++i) {
        if (rank == late) let_others_fall_asleep();
        if (rank == 0) transport.post_send(1, header, payload);
        if (rank == 1) transport.post_receive(0, header, {});
        sleep_until_woken(transport);
        transport.release();
      }
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
}

TEST_CASE("an announcement wakes every rank that waits for it") {
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto port = free_port();
    const auto outcomes = on_threads(size, [&](int rank) {
      const Connections connections = connect_shm(rank_info_of(rank, size, port));
      Transport& transport = *connections.transport;
      const std::byte payload[8] = {};
      MessageHeader header;
      header.bytes = sizeof payload;
      header.slice = MessageHeader::to_everybody;
      const std::vector<Shown> shown(static_cast<std::size_t>(size), Shown{.payload = payload});
      for (int round = 0; round < 2 * size; ++round) {
        if (rank == round % size) let_others_fall_asleep();
        transport.announce(header, shown);
        for (int peer = 0; peer < size; ++peer) {
          if (peer == rank) continue;
          transport.post_receive(peer, header, {});
          sleep_until_woken(transport);
        }
      }
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
}

// Payloads of any length, for everybody or one for each rank, in the smallest room for two rounds.
// Ranks are late now and then: nothing may be overwritten before they have read it.
TEST_CASE("announcements of two rounds do not overlap in their room") {
  constexpr std::uint32_t most = 20 * 1024;
  const auto byte_of = [](int from, int to, int round, std::size_t i) {
    return static_cast<std::byte>(31 * from + 7 * to + 13 * round + static_cast<int>(i % 251));
  };
  const auto announce_rounds = [&](Transport& transport) {
    const int rank = transport.rank(), size = transport.size();
    for (int round = 0; round < 400; ++round) {
      const auto roll = [&](std::uint64_t below, std::uint64_t what) {
        return random_below(below, 5, what, static_cast<std::uint64_t>(round));
      };
      const bool same = roll(2, 0) == 0;
      MessageHeader header;
      header.slice = same ? MessageHeader::to_everybody : MessageHeader::to_each;
      header.bytes = 1 + roll(same ? most : most / static_cast<std::uint64_t>(size) - 128, 1);
      std::vector<std::vector<std::byte>> payloads(static_cast<std::size_t>(size));
      std::vector<Shown> shown;
      for (int to = 0; to < size; ++to) {
        auto& payload = payloads[static_cast<std::size_t>(to)];
        for (std::size_t i = 0; i < header.bytes; ++i)
          payload.push_back(byte_of(rank, same ? 0 : to, round, i));
        shown.push_back({.payload = payload});
      }
      transport.announce(header, shown);
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        if (roll(20, static_cast<std::uint64_t>(10 + rank)) == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        transport.post_receive(peer, header, {});
        const auto seen = transport.wait(Deadline::after(Seconds(20)))->payload;
        require(seen.size() == header.bytes, "{} bytes", seen.size());
        for (std::size_t i = 0; i < seen.size(); ++i)
          require(seen[i] == byte_of(peer, same ? 0 : rank, round, i), "round {}, byte {}", round,
                  i);
      }
    }
  };
  for (const bool crowded : {false, true})
    for (const int size : {2, 3, 4}) {
      CAPTURE(crowded);
      CAPTURE(size);
      const ShmLayout layout = shm_layout({.announced_bytes = most}, size);
      std::vector<SharedSegment> made;
      for (int r = 0; r < size; ++r)
        made.push_back(SharedSegment::create(shm_segment_bytes(layout, size), "a rank"));
      const auto outcomes = on_threads(size, [&](int rank) {
        std::vector<SharedSegment> segments;
        for (const SharedSegment& each : made)
          segments.push_back(SharedSegment::open(each.handle()));
        announce_rounds(*make_shm_transport(rank, 0, layout, std::move(segments), crowded));
      });
      for (const auto& outcome : outcomes) CHECK(outcome == "");
    }
}

// Each rank is told by its launcher how many ranks its host has, and some count wrongly.
TEST_CASE("shm: ranks that are told different numbers of ranks on the host read the right bytes") {
  for (const int size : {2, 3, 4}) {
    const auto port = free_port();
    const auto outcomes = on_threads(size, [&](int rank) {
      RankInfo rank_info = rank_info_of(rank, size, port);
      rank_info.local_size = rank == size - 1 ? 10'000 : 1;
      ProcessGroup group(make_schedule_backend(connect_shm(rank_info)));
      const std::size_t block = 30'000;
      std::vector<float> mine(block * static_cast<std::size_t>(size)), others(mine.size());
      for (int round = 0; round < 6; ++round) {
        for (std::size_t i = 0; i < mine.size(); ++i)
          mine[i] = static_cast<float>(1000 * round + 10 * rank + static_cast<int>(i / block));
        group.all_to_all(std::span(mine), std::span(others));
        for (int r = 0; r < size; ++r)
          all_equal(std::span(others).subspan(static_cast<std::size_t>(r) * block, block),
                    static_cast<float>(1000 * round + 10 * r + rank), "all_to_all");
      }
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
}

// The control channel: who hears what, over sockets and between threads.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "collectives/diagnostics/first_cause.hpp"
#include "collectives/diagnostics/socket_control_channel.hpp"
#include "collectives/diagnostics/threads_control_channel.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

std::pair<FileDescriptor, FileDescriptor> socket_pair() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// The channel of rank 0 in a world of two.
std::unique_ptr<ControlChannel> channel_of_rank_0(FileDescriptor to_rank_1) {
  std::vector<FileDescriptor> sockets(2);
  sockets[1] = std::move(to_rank_1);
  return make_socket_control_channel(0, std::move(sockets));
}

// The channels of both ranks of a world, by kind.
using Pair = std::vector<std::unique_ptr<ControlChannel>>;

Pair over_sockets() {
  auto [zero, one] = socket_pair();
  Pair channels;
  channels.push_back(channel_of_rank_0(std::move(zero)));
  std::vector<FileDescriptor> sockets(2);
  sockets[0] = std::move(one);
  channels.push_back(make_socket_control_channel(1, std::move(sockets)));
  return channels;
}

Pair between_threads() {
  const auto inboxes = make_control_inboxes(2);
  Pair channels;
  for (const int rank : {0, 1}) channels.push_back(make_threads_control_channel(inboxes, rank));
  return channels;
}

Call all_reduce_of(std::uint64_t count) {
  Call call;
  call.collective = Collective::all_reduce;
  call.count = count;
  return call;
}

// Everything that has arrived on a socket.
std::vector<ControlMessage> drain(const FileDescriptor& socket, ControlMessageReader& reader) {
  char bytes[4096];
  for (ssize_t n; (n = ::recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
    reader.feed({bytes, static_cast<std::size_t>(n)});
  std::vector<ControlMessage> messages;
  while (auto message = reader.next()) messages.push_back(*message);
  return messages;
}

template <class Body>
std::string failure_of(Body body) {
  try {
    body();
  } catch (const RankFailure& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a peer hears a position and the calls before it, once") {
  for (auto make : {over_sockets, between_threads}) {
    auto channels = make();
    channels[0]->history().add(1, all_reduce_of(100));
    Position mine;
    mine.sequence = 1;
    mine.step = 3;
    mine.waiting_for = 1;
    for (int i = 0; i < 2; ++i) {
      channels[0]->tell_position(mine);
      const auto positions = channels[1]->positions(Seconds(0.1));
      CHECK(positions[0].recent());
      CHECK(positions[0].step == 3);
      CHECK(positions[0].waiting_for == 1);
      CHECK(positions[0].made.last() == 1);
      CHECK(positions[0].made.at(1) == all_reduce_of(100));
    }
  }
}

TEST_CASE("a peer hears why a rank gives up, and that is the cause of all later errors") {
  for (auto make : {over_sockets, between_threads}) {
    auto channels = make();
    channels[0]->abort(RankFailure(0, "the data file is empty"));
    channels[0].reset();
    for (int i = 0; i < 2; ++i)
      CHECK(failure_of([&] { channels[1]->listen(); }) ==
            "the data file is empty (as rank 0 tells)");
    CHECK(failure_of([&] { channels[1]->explain(0, "End of file"); }) ==
          "the data file is empty (as rank 0 tells)");
  }
}

// Rank 1 tells its wait once, and stops. Ranks 2 and 0 wait for it, directly or not, and go on to
// tell each other what they have heard.
TEST_CASE("the wait of a rank that is silent is forgotten, though others pass it on") {
  const auto inboxes = make_control_inboxes(3);
  std::vector<std::unique_ptr<ControlChannel>> channels;
  for (const int rank : {0, 1, 2}) channels.push_back(make_threads_control_channel(inboxes, rank));
  const auto tell = [&](int rank, int waits_for) {
    channels[rank]->tell_position(
        {.sequence = 1, .call = all_reduce_of(3), .waiting_for = waits_for, .made = {}});
  };
  tell(1, 0);
  channels[0]->listen();
  CHECK(channels[0]->waits().waits().contains(1));
  for (const Deadline end = Deadline::after(Seconds(3)); !end.expired();) {
    tell(0, 1);
    tell(2, 0);
    for (const int rank : {0, 2}) channels[rank]->listen();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (const int rank : {0, 2}) {
    CHECK(!channels[rank]->waits().waits().contains(1));
    CHECK(channels[rank]->waits().waits().contains(2 - rank));
  }
}

TEST_CASE("a position that names no rank of the group is its sender's failure") {
  for (auto make : {over_sockets, between_threads})
    for (const int peer : {2, -2}) {
      auto channels = make();
      Position wrong;
      wrong.waiting_for = peer;
      channels[0]->tell_position(wrong);
      CHECK(failure_of([&] { channels[1]->listen(); }) ==
            fmt::format("rank 0 says that it waits for rank {} of 2", peer));
    }
}

TEST_CASE("a broken connection is explained by a goodbye") {
  for (auto make : {over_sockets, between_threads}) {
    auto channels = make();
    channels[0].reset();
    CHECK(failure_of([&] { channels[1]->listen(); }) == "");
    CHECK(failure_of([&] { channels[1]->explain(0, "End of file"); }) ==
          "rank 0 has left the group, and rank 1 still waits for it");
  }
}

TEST_CASE("a broken connection without an explanation is reported with its symptom") {
  auto channels = over_sockets();
  CHECK(failure_of([&] { channels[1]->explain(0, "Connection reset by peer"); }) ==
        "the connection to rank 0 broke: Connection reset by peer");
}

TEST_CASE("a peer whose connection closes without a goodbye is gone") {
  auto [zero, one] = socket_pair();
  const auto channel = channel_of_rank_0(std::move(zero));
  one.close();
  CHECK(failure_of([&] { channel->listen(); }) ==
        "rank 1 is gone: its connection closed without a goodbye, as when a process is killed or "
        "crashes");
}

TEST_CASE("the first interruption counts") {
  FirstCause<RankFailure> interruption;
  CHECK(failure_of([&] { interruption.throw_if_any(); }) == "");
  interruption.keep(RankFailure(0, "first"));
  interruption.keep(RankFailure(0, "second"));
  CHECK(failure_of([&] { interruption.throw_if_any(); }) == "first");
}

TEST_CASE("a peer that did not listen for long still hears every call") {
  auto [zero, one] = socket_pair();
  const int small = 4096;
  ::setsockopt(zero.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const auto channel = channel_of_rank_0(std::move(zero));
  ControlMessageReader reader;
  channel->history().add(1, all_reduce_of(100));
  for (int i = 0; i < 1000; ++i) channel->tell_position({});  // fills the kernel's buffer
  channel->history().add(2, all_reduce_of(200));
  drain(one, reader);  // now there is room again
  channel->tell_position({});
  channel->tell_position({});
  std::uint64_t heard = 0;
  for (const auto& message : drain(one, reader))
    heard = std::max(heard, CallHistory::from_bytes(message.text).last());
  CHECK(heard == 2);
}

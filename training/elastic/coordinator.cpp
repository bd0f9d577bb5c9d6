#include "training/elastic/coordinator.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/error.hpp"
#include "collectives/execution/executor_options.hpp"
#include "training/elastic/membership.hpp"

namespace ringside::training {

namespace {

// A rank that cannot be reached is dying: its process is waited for.
void send(const FileDescriptor& socket, const News& news, const std::vector<Member>& members = {}) {
  std::array<iovec, 2> parts{
      iovec{const_cast<News*>(&news), sizeof news},
      iovec{const_cast<Member*>(members.data()), members.size() * sizeof(Member)}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  [[maybe_unused]] const ssize_t sent =
      ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

FileDescriptor Coordinator::start(int number, std::map<std::string, std::string>& variables) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0,
          "no sockets to an elastic rank: {}", std::strerror(errno));
  ranks_[number] = {FileDescriptor(ends[0])};
  variables[Membership::variable] =
      fmt::format("{}:{}:{}", ends[1], sizes_.smallest, sizes_.largest);
  return FileDescriptor(ends[1]);
}

collectives::JobMembers::Loss Coordinator::lost(int number) {
  const bool trained = ranks_.at(number).state == State::trains;
  ranks_.erase(number);
  if (trained) tell_members(News::member_lost);  // those that are not connected yet wait for it
  // A rank that has ended well has seen all others at the end of their work.
  if (over_) return {};
  const bool replace = replacements_ > 0;
  const int others = static_cast<int>(ranks_.size()), left = others + (replace ? 1 : 0);
  if (left < sizes_.smallest)
    return {.ends_job = true,
            .consequence =
                fmt::format("{} of the {} ranks that --elastic needs {} left: ending the job", left,
                            sizes_.smallest, left == 1 ? "is" : "are")};
  if (replace) --replacements_;
  return {.is_replaced = replace,
          .consequence = fmt::format(
              "{} on{}", others == 1 ? "1 rank goes" : fmt::format("{} ranks go", others),
              replace ? ", and another process takes its place" : "")};
}

void Coordinator::finished(int number) {
  ranks_.erase(number);
  over_ = true;
}

std::vector<int> Coordinator::descriptors() const {
  std::vector<int> sockets;
  for (const auto& [number, rank] : ranks_) sockets.push_back(rank.socket.get());
  return sockets;
}

int Coordinator::count(State state) const {
  return static_cast<int>(std::count_if(
      ranks_.begin(), ranks_.end(), [&](const auto& each) { return each.second.state == state; }));
}

void Coordinator::tell_members(News::Kind kind) {
  for (const auto& [number, rank] : ranks_)
    if (rank.state == State::trains) send(rank.socket, {kind, generation_});
}

void Coordinator::end_waiting() {
  for (const auto& [number, rank] : ranks_)
    if (rank.state == State::waits) send(rank.socket, {News::run_is_over, generation_});
}

std::optional<int> Coordinator::serve() {
  for (auto& [number, rank] : ranks_) {
    JoinRequest request;
    if (::recv(rank.socket.get(), &request, sizeof request, MSG_DONTWAIT) != sizeof request)
      continue;
    rank.state = State::waits;
    rank.request = request;
    had_state_ = had_state_ || request.steps >= 0;
  }
  if (count(State::waits) == 0) return std::nullopt;
  if (over_) {
    end_waiting();
    return std::nullopt;
  }
  if (count(State::trains) > 0) {
    if (!told_to_leave_) {
      tell_members(News::somebody_waits);
      told_to_leave_ = true;
      must_have_left_ = Deadline::after(collectives::ExecutorOptions().timeout);
    }
    if (!must_have_left_->expired()) return std::nullopt;
    return std::find_if(ranks_.begin(), ranks_.end(),
                        [](const auto& each) { return each.second.state == State::trains; })
        ->first;
  }
  // The first generation waits for all; a later one only if it has too few.
  const bool enough = generation_ > 0 && count(State::waits) >= sizes_.smallest;
  if (count(State::starting) == 0 || enough) form_generation();
  return std::nullopt;
}

void Coordinator::form_generation() {
  std::vector<std::pair<std::int64_t, Member>> waiting;
  bool from_last_generation = false;
  for (auto& [number, rank] : ranks_) {
    if (rank.state != State::waits) continue;
    waiting.push_back({rank.request.steps, {number, rank.request.endpoint}});
    from_last_generation = from_last_generation || rank.request.generation == generation_;
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const std::int64_t newest = waiting.front().first;
  // A rank of the last generation without a state has not trained, so no other has.
  if (newest < 0 && (had_state_ || !from_last_generation)) {
    problem_ = "no rank is left that has the parameters of the run";
    end_waiting();
    return;
  }
  std::vector<Member> members;
  for (const auto& [steps, member] : waiting) members.push_back(member);
  const auto size = static_cast<int>(members.size());
  const News news{News::members, ++generation_, size < sizes_.smallest, size, newest};
  told_to_leave_ = false;
  for (const Member& member : members) {
    Rank& rank = ranks_.at(member.number);
    rank.state = State::trains;
    send(rank.socket, news, members);
  }
}

}  // namespace ringside::training

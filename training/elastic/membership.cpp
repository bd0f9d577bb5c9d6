#include "training/elastic/membership.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/system/fork.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/group_options.hpp"

namespace ringside::training {
namespace {

using collectives::ProcessGroup;

constexpr int most_members = 1024;
constexpr int most_attempts = 10;  // to connect, one after the other

struct Variable {
  int descriptor = -1;
  ElasticSizes sizes;
};

std::optional<Variable> variable_from_environment() {
  const std::string text = environment(Membership::variable).value_or("");
  Variable v;
  return std::sscanf(text.c_str(), "%d:%d:%d", &v.descriptor, &v.sizes.smallest,
                     &v.sizes.largest) == 3
             ? std::optional(v)
             : std::nullopt;
}

}  // namespace

std::optional<ElasticSizes> Membership::sizes_from_environment() {
  const auto found = variable_from_environment();
  return found ? std::optional(found->sizes) : std::nullopt;
}

Membership::Membership(collectives::RankInfo rank_info, std::string backend)
    : rank_info_(std::move(rank_info)) {
  const auto found = variable_from_environment();
  require(found.has_value(),
          "an elastic rank needs Ringside's launcher, which decides who takes part: start the "
          "ranks with ringside train -n, or ringside launch --elastic");
  launcher_ = FileDescriptor(found->descriptor);
  keep_from_children(found->descriptor);
  rank_info_.backend = std::move(backend);
  rank_info_.local_size = 1;  // the connector counts the members on this host
}

bool Membership::somebody_waits() {
  std::vector<Member> none;
  while (const auto news = receive(none, false)) leave_ = leave_ || news->generation == generation_;
  return leave_;
}

std::optional<ProcessGroup> Membership::join(std::int64_t steps) {
  for (int attempt = 1;; ++attempt) {
    const auto connector = collectives::make_connector_at(rank_info_.master_address, rank_info_);
    const JoinRequest request{generation_, steps, connector->listen()};
    require(::send(launcher_.get(), &request, sizeof request, MSG_NOSIGNAL) == sizeof request,
            "the launcher has ended this job");
    std::vector<Member> members;
    const News news = next_generation(members);
    if (news.kind == News::run_is_over) return std::nullopt;
    generation_ = news.generation;
    newest_step_ = news.steps;
    too_few_ = news.too_few != 0;
    leave_ = false;
    members_.clear();
    std::vector<collectives::Endpoint> endpoints;
    int rank = -1;
    for (const Member& member : members) {
      if (member.number == rank_info_.rank) rank = static_cast<int>(members_.size());
      members_.push_back(member.number);
      endpoints.push_back(member.endpoint);
    }
    // No rank of another generation knows this name: it is part of the key of every connection.
    const std::string name = fmt::format("generation{}@{}", generation_, fmt::join(members_, ","));
    try {
      collectives::GroupOptions options = collectives::group_options_from_environment();
      options.executor.group = name;
      return ProcessGroup::over(connector->connect(name, rank, endpoints,
                                                   [&] {
                                                     if (somebody_waits())
                                                       fail("a member of {} is lost", name);
                                                   }),
                                options);
    } catch (const Error&) {  // a member has died meanwhile: the launcher forms another generation
      if (attempt == most_attempts) throw;
    }
  }
}

News Membership::next_generation(std::vector<Member>& members) {
  for (;;) {
    const auto news = receive(members, true);
    if (news && (news->kind == News::members || news->kind == News::run_is_over)) return *news;
  }
}

// A message, or nothing if none has arrived.
std::optional<News> Membership::receive(std::vector<Member>& members, bool wait) {
  News news;
  members.resize(most_members);
  std::array<iovec, 2> parts{iovec{&news, sizeof news},
                             iovec{members.data(), members.size() * sizeof(Member)}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(launcher_.get(), &message, wait ? 0 : MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  require(got >= static_cast<ssize_t>(sizeof news), "the launcher has ended this job");
  members.resize(static_cast<std::size_t>(news.kind == News::members ? news.size : 0));
  return news;
}

}  // namespace ringside::training

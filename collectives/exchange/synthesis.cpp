#include "collectives/exchange/synthesis.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/shared_library.hpp"
#include "collectives/exchange/pack_messages.hpp"
#include "collectives/proof/verify.hpp"

namespace ringside::collectives {
namespace {

// ---- Z3, opened only here

// The functions of Z3's C interface that text needs. Contexts are pointers of its own.
class Z3 {
 public:
  Z3() : library_("Z3 (package libz3-4)", "libz3.so.4", "/usr/local/lib") {
    void* (*make_config)() = nullptr;
    void (*delete_config)(void*) = nullptr;
    void* (*make_context)(void*) = nullptr;
    void (*set_handler)(void*, void (*)(void*, int)) = nullptr;
    library_.find(make_config, "Z3_mk_config");
    library_.find(delete_config, "Z3_del_config");
    library_.find(make_context, "Z3_mk_context");
    library_.find(set_handler, "Z3_set_error_handler");
    library_.find(eval_, "Z3_eval_smtlib2_string");
    library_.find(delete_, "Z3_del_context");
    void* const config = make_config();
    context_ = make_context(config);
    delete_config(config);
    set_handler(context_, [](void*, int) {});  // Z3's own ends the process
  }
  ~Z3() { delete_(context_); }
  Z3(const Z3&) = delete;
  Z3& operator=(const Z3&) = delete;

  // What Z3 prints for commands of SMT-LIB.
  std::string eval(const std::string& commands) { return eval_(context_, commands.c_str()); }

 private:
  SharedLibrary library_;
  const char* (*eval_)(void*, const char*) = nullptr;
  void (*delete_)(void*) = nullptr;
  void* context_ = nullptr;
};

// ---- The encoding

// A chunk that begins on one node, and must come to some.
struct Journey {
  int source;
  std::function<bool(int node)> must_reach;
};

// One chunk over one link in a step from 1 on.
struct Hop {
  int chunk, from, to, step;
};

class Encoding {
 public:
  Encoding(const Network& network, const std::vector<Journey>& journeys, const Question& question)
      : network_(network), journeys_(journeys), steps_(question.steps) {
    extra_ = question.rounds - question.steps;
    say("(set-option :timeout {})\n", static_cast<std::int64_t>(question.time_limit.count() * 1e3));
    for (int chunk = 0; chunk < static_cast<int>(journeys.size()); ++chunk) {
      for (int node = 0; node < network.size; ++node)
        for (int step = 1; step <= steps_ && node != journeys[chunk].source; ++step)
          say("(declare-const {} Bool)\n", holds(chunk, node, step));
      for (int node = 0; node < network.size; ++node)
        if (node != journeys[chunk].source) tell_arrival(chunk, node);
    }
    tell_rounds();
    for (const Network::Edge& edge : network.edges)
      for (int step = 1; step <= steps_; ++step) tell_width(edge, step);
    say("(check-sat)\n");
  }

  const std::string& text() const { return text_; }
  const std::vector<Hop>& hops() const { return hops_; }  // all that may be; hop i is "x<i>"

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...);
  }

  std::string holds(int chunk, int node, int step) const {
    if (node == journeys_[chunk].source) return "true";
    return step == 0 ? "false" : fmt::format("h{}_{}_{}", chunk, node, step);
  }

  // A node holds a chunk from the step on that brings it. It comes once at most, from a node that
  // held it before the step.
  void tell_arrival(int chunk, int node) {
    std::vector<std::string> all;
    for (int step = 1; step <= steps_; ++step) {
      std::vector<std::string> now;
      for (const Network::Edge& edge : network_.edges) {
        if (edge.to != node) continue;
        now.push_back(fmt::format("x{}", hops_.size()));
        hops_.push_back({chunk, edge.from, node, step});
        say("(declare-const {} Bool)\n(assert (=> {} {}))\n", now.back(), now.back(),
            holds(chunk, edge.from, step - 1));
      }
      say("(assert (= {} (or {} {})))\n", holds(chunk, node, step), holds(chunk, node, step - 1),
          fmt::join(now, " "));
      all.insert(all.end(), now.begin(), now.end());
    }
    if (!all.empty()) say("(assert ((_ at-most 1) {}))\n", fmt::join(all, " "));
    if (journeys_[chunk].must_reach(node)) say("(assert {})\n", holds(chunk, node, steps_));
  }

  // r<s>_<k>: step s has at least k rounds more than one.
  void tell_rounds() {
    std::vector<std::string> all;
    for (int step = 1; step <= steps_; ++step)
      for (int k = 1; k <= extra_; ++k) {
        all.push_back(fmt::format("r{}_{}", step, k));
        say("(declare-const {} Bool)\n", all.back());
        if (k > 1) say("(assert (=> r{}_{} r{}_{}))\n", step, k, step, k - 1);
      }
    if (extra_ > 0) say("(assert ((_ at-most {}) {}))\n", extra_, fmt::join(all, " "));
  }

  // chunks over the link <= width * rounds, with the rounds that the step does not have as a load.
  void tell_width(const Network::Edge& edge, int step) {
    std::string weights, terms;
    for (std::size_t i = 0; i < hops_.size(); ++i) {
      const Hop& hop = hops_[i];
      if (hop.from != edge.from || hop.to != edge.to || hop.step != step) continue;
      weights += " 1", terms += fmt::format(" x{}", i);
    }
    for (int k = 1; k <= extra_; ++k)
      weights += fmt::format(" {}", edge.width), terms += fmt::format(" (not r{}_{})", step, k);
    if (!terms.empty())
      say("(assert ((_ pble {}{}){}))\n", edge.width * (1 + extra_), weights, terms);
  }

  const Network& network_;
  const std::vector<Journey>& journeys_;
  int steps_, extra_ = 0;
  std::string text_;
  std::vector<Hop> hops_;
};

// A node whose links are too narrow for what it must receive; "" if counting finds none. A solver
// would try every way to distribute the chunks.
std::string fault_of_width(const Network& network, const std::vector<Journey>& journeys,
                           int rounds) {
  for (int node = 0; node < network.size; ++node) {
    const auto needed = std::count_if(
        journeys.begin(), journeys.end(),
        [&](const Journey& journey) { return journey.source != node && journey.must_reach(node); });
    std::int64_t width = 0;
    for (const Network::Edge& edge : network.edges)
      if (edge.to == node) width += edge.width;
    if (needed > width * rounds)
      return fmt::format(
          "Counting proves it: rank {} must receive {} chunks, and its links carry {}", node,
          needed, width * rounds);
  }
  return "";
}

struct Found {
  Answer answer;
  std::vector<Hop> hops;  // in the order of their steps
  std::string why = {};   // if there is none
};

Found solve(const Network& network, const std::vector<Journey>& journeys,
            const Question& question) {
  if (const auto fault = fault_of_width(network, journeys, question.rounds); !fault.empty())
    return {Answer::none, {}, fault};
  const Encoding encoding(network, journeys, question);
  Z3 z3;
  const std::string answer = z3.eval(encoding.text());
  if (answer == "unsat\n") return {Answer::none, {}, "Z3 proved it"};
  if (answer == "unknown\n") return {Answer::out_of_time, {}};
  require(answer == "sat\n", "Z3 does not understand the question: {}",
          answer.substr(0, answer.find('\n')));
  std::string names;
  for (std::size_t i = 0; i < encoding.hops().size(); ++i) names += fmt::format(" x{}", i);
  const std::string values = z3.eval("(get-value (" + names + "))");
  Found found{Answer::found, {}};
  for (std::size_t i = 0; i < encoding.hops().size(); ++i)
    if (values.find(fmt::format("(x{} true)", i)) != std::string::npos)
      found.hops.push_back(encoding.hops()[i]);
  std::stable_sort(found.hops.begin(), found.hops.end(),
                   [](const Hop& a, const Hop& b) { return a.step < b.step; });
  return found;
}

// ---- Collectives

Network reversed(Network network) {
  for (Network::Edge& edge : network.edges) std::swap(edge.from, edge.to);
  return network;
}

// The chunks of a collective that only moves data.
std::vector<Journey> journeys_of(Collective collective, int size, const Question& question) {
  const int root = question.root;
  const auto everywhere = [](int) { return true; };
  std::vector<Journey> journeys;
  for (int block = 0; block < (has_blocks(collective) ? size : 1); ++block)
    for (int i = 0; i < question.chunks; ++i) switch (collective) {
        case Collective::all_gather:
          journeys.push_back({block, everywhere});
          break;
        case Collective::broadcast:
          journeys.push_back({root, everywhere});
          break;
        case Collective::gather:
          journeys.push_back({block, [root](int node) { return node == root; }});
          break;
        case Collective::scatter:
          journeys.push_back({root, [block](int node) { return node == block; }});
          break;
        default:
          fail(
              "there is no synthesis of {}: choose all_gather, broadcast, gather, scatter, "
              "reduce_scatter, reduce or all_reduce",
              name_of(collective));
      }
  return journeys;
}

// Chunks that lie side by side and travel together are one message.
std::vector<Message> messages_of(const std::vector<Hop>& hops, Action action) {
  std::vector<Message> messages;
  std::map<std::pair<int, int>, std::size_t> last;  // of this step, over that link
  int step = 0;
  for (const Hop& hop : hops) {
    if (hop.step != step) last.clear();
    step = hop.step;
    const auto [at, is_new] = last.try_emplace({hop.from, hop.to}, messages.size());
    if (!is_new &&
        messages[at->second].chunks.first + messages[at->second].chunks.count == hop.chunk) {
      ++messages[at->second].chunks.count;
      continue;
    }
    at->second = messages.size();
    messages.push_back({hop.from, hop.to, {hop.chunk}, action});
  }
  return messages;
}

void count_rounds(const std::vector<Hop>& hops, const Network& network, int steps,
                  std::vector<int>& rounds) {
  for (int step = 1; step <= steps; ++step) {
    int most = 1;
    for (const Network::Edge& edge : network.edges) {
      const auto carried = std::count_if(hops.begin(), hops.end(), [&](const Hop& hop) {
        return hop.step == step && hop.from == edge.from && hop.to == edge.to;
      });
      most = std::max(most, (static_cast<int>(carried) + edge.width - 1) / edge.width);
    }
    rounds.push_back(most);
  }
}

}  // namespace

Synthesis synthesize(const Question& given, const Network& network) {
  Question question = given;
  require(question.chunks >= 1 && question.steps >= 1 && question.rounds >= question.steps,
          "expected at least 1 chunk and 1 step, and as many rounds as steps: {} chunks, {} steps, "
          "{} rounds",
          question.chunks, question.steps, question.rounds);
  require(question.root >= 0 && question.root < network.size, "the root must be one of 0 to {}",
          network.size - 1);
  const bool both = question.collective == Collective::all_reduce;
  if (both) {
    require(question.steps % 2 == 0 && question.rounds % 2 == 0,
            "an all_reduce is a reduce_scatter and an all_gather: expected an even number of steps "
            "and of rounds, not {} and {}",
            question.steps, question.rounds);
    question.steps /= 2, question.rounds /= 2;
  }
  const bool adds = reduces(question.collective);
  Collective moves = question.collective;
  if (both || moves == Collective::reduce_scatter) moves = Collective::all_gather;
  if (moves == Collective::reduce) moves = Collective::broadcast;

  const auto journeys = journeys_of(moves, network.size, question);
  std::vector<Message> messages;
  Synthesis synthesis{Answer::found, {}, {question.collective, question.root, {}}, {}};
  const auto take = [&](const Network& over, Action action) {
    Found found = solve(over, journeys, question);
    synthesis.answer = found.answer, synthesis.why = found.why;
    if (found.answer != Answer::found) return;
    if (action == Action::add) {  // backwards
      for (Hop& hop : found.hops) {
        std::swap(hop.from, hop.to);
        hop.step = question.steps + 1 - hop.step;
      }
      std::stable_sort(found.hops.begin(), found.hops.end(),
                       [](const Hop& a, const Hop& b) { return a.step < b.step; });
    }
    count_rounds(found.hops, network, question.steps, synthesis.rounds);
    const auto part = messages_of(found.hops, action);
    messages.insert(messages.end(), part.begin(), part.end());
  };
  if (adds) take(reversed(network), Action::add);
  if (!adds || (both && synthesis.answer == Answer::found)) take(network, Action::overwrite);
  if (synthesis.answer != Answer::found) return synthesis;
  synthesis.algorithm.schedules =
      pack_messages(network.size, static_cast<int>(journeys.size()), messages);
  const auto faults = verify(question.collective, synthesis.algorithm.schedules, question.root);
  require(faults.empty(), "what Z3 found is wrong: {}", faults.empty() ? "" : faults[0]);
  return synthesis;
}

}  // namespace ringside::collectives

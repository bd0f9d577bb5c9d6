// Judges what ranks hold for each other. A step is judged by its states: every moment that ranks
// can be in, with each of them lost.
#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <string>
#include <vector>

#include "base/text/words.hpp"
#include "exercises/41-neighbours-copy/interface.hpp"
#include "exercises/41-neighbours-copy/reference/neighbours_copy.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

using backup::Action;
using backup::Bytes;
using backup::Kind;
using backup::Piece;
using backup::Pieces;
using backup::Strategy;

constexpr std::array strategies = {Strategy::data_parallel, Strategy::zero1, Strategy::zero2,
                                   Strategy::zero3};
constexpr std::array strategy_names = {"data_parallel", "zero1", "zero2", "zero3"};
constexpr std::array action_names = {"compute", "reduce",     "send_gradient", "agree",
                                     "update",  "send_state", "update_copy",   "gather"};
constexpr int most_ranks = 6;

std::string name_of(Strategy strategy) {
  return strategy_names[static_cast<std::size_t>(strategy)];
}

std::string name_of(Action action) {
  return action_names[static_cast<std::size_t>(action)];
}

std::string name_of(const Piece& piece) {
  return fmt::format("the {} of shard {}",
                     piece.kind == Kind::parameters ? "parameters" : "moments", piece.shard);
}

std::string in_words(const std::vector<std::string>& words) {
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

// ---- What ranks hold ----

Json json_of(const Pieces& pieces) {
  Json json = Json::array();
  for (const Piece& piece : pieces) json.push_back({static_cast<int>(piece.kind), piece.shard});
  return json;
}

Pieces pieces_from(const Json& json) {
  Pieces pieces;
  for (const Json& each : json)
    pieces.insert({static_cast<Kind>(each.at(0).get<int>()), each.at(1).get<int>()});
  return pieces;
}

std::string in_words(const Pieces& pieces) {
  std::vector<std::string> words;
  for (const Piece& piece : pieces) words.push_back(name_of(piece));
  return in_words(words);
}

// [strategy][ranks][rank]: what `of` says.
Json all_pieces(const PiecesOf& of) {
  Json all = Json::array();
  for (const Strategy strategy : strategies) {
    Json by_ranks = Json::array();
    for (int ranks = 0; ranks <= most_ranks; ++ranks) {
      Json by_rank = Json::array();
      for (int rank = 0; ranks >= 2 && rank < ranks; ++rank)
        by_rank.push_back(json_of(of(strategy, ranks, rank)));
      by_ranks.push_back(by_rank);
    }
    all.push_back(by_ranks);
  }
  return all;
}

Json collect_held(World&) {
  return all_pieces(student_held);
}

Json collect_copies(World&) {
  return all_pieces(student_copies);
}

// The first fault that `fault` finds, over all strategies and numbers of ranks.
template <class Fault>
Verdict first_of(const Fault& fault) {
  for (const Strategy strategy : strategies)
    for (int ranks = 2; ranks <= most_ranks; ++ranks)
      if (const std::string found = fault(strategy, ranks); !found.empty())
        return {{fmt::format("{}, {} ranks: {}", name_of(strategy), ranks, found)}};
  return {};
}

const Json& of(const Run& run, Strategy strategy, int ranks) {
  return run.ranks[0].at(static_cast<std::size_t>(strategy)).at(static_cast<std::size_t>(ranks));
}

Verdict judge_held(const Run& run) {
  return first_of([&](Strategy strategy, int ranks) -> std::string {
    for (int rank = 0; rank < ranks; ++rank) {
      const Pieces seen = pieces_from(of(run, strategy, ranks).at(static_cast<std::size_t>(rank))),
                   right = backup::held(strategy, ranks, rank);
      if (seen != right)
        return fmt::format("rank {} holds {}, expected {}", rank, in_words(seen), in_words(right));
    }
    return "";
  });
}

Verdict judge_copies(const Run& run) {
  return first_of([&](Strategy strategy, int ranks) -> std::string {
    std::vector<Pieces> copies;
    for (int rank = 0; rank < ranks; ++rank)
      copies.push_back(pieces_from(of(run, strategy, ranks).at(static_cast<std::size_t>(rank))));
    for (int lost = 0; lost < ranks; ++lost) {
      Pieces left;
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == lost) continue;
        left.merge(backup::held(strategy, ranks, rank));
        left.insert(copies[static_cast<std::size_t>(rank)].begin(),
                    copies[static_cast<std::size_t>(rank)].end());
      }
      for (const Piece& piece : backup::held(strategy, ranks, lost))
        if (!left.contains(piece))
          return fmt::format("rank {} is lost, and nobody else holds {}", lost, name_of(piece));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t seen = copies[static_cast<std::size_t>(rank)].size(),
                        enough = backup::copies(strategy, ranks, rank).size();
      if (seen > enough)
        return fmt::format("rank {} holds {} for others: {} pieces, {} are enough", rank,
                           in_words(copies[static_cast<std::size_t>(rank)]), seen, enough);
    }
    return "";
  });
}

// ---- Which losses they survive ----

std::set<int> ranks_in(int bits) {
  std::set<int> ranks;
  for (int rank = 0; rank < most_ranks; ++rank)
    if (bits >> rank & 1) ranks.insert(rank);
  return ranks;
}

// With the copies: which pair of ranks must not be lost together is the student's choice.
Json collect_lost(World&) {
  Json survived = Json::array();
  for (const Strategy strategy : strategies) {
    Json by_ranks = Json::array();
    for (int ranks = 0; ranks <= most_ranks; ++ranks) {
      Json by_lost = Json::array();
      for (int bits = 0; ranks >= 2 && bits < 1 << ranks; ++bits)
        by_lost.push_back(student_survives(strategy, ranks, ranks_in(bits)));
      by_ranks.push_back(by_lost);
    }
    survived.push_back(by_ranks);
  }
  return {{"copies", all_pieces(student_copies)}, {"survives", survived}};
}

Verdict judge_lost(const Run& run) {
  return first_of([&](Strategy strategy, int ranks) -> std::string {
    const auto of_ranks = [&](const char* what) -> const Json& {
      return run.ranks[0]
          .at(what)
          .at(static_cast<std::size_t>(strategy))
          .at(static_cast<std::size_t>(ranks));
    };
    for (int bits = 0; bits < 1 << ranks; ++bits) {
      const std::set<int> lost = ranks_in(bits);
      Pieces left;
      for (int rank = 0; rank < ranks; ++rank) {
        if (lost.contains(rank)) continue;
        left.merge(backup::held(strategy, ranks, rank));
        left.merge(pieces_from(of_ranks("copies").at(static_cast<std::size_t>(rank))));
      }
      Pieces gone;
      for (int shard = 0; shard < ranks; ++shard)
        for (const Kind kind : {Kind::parameters, Kind::moments})
          if (!left.contains({kind, shard})) gone.insert({kind, shard});
      const bool seen = of_ranks("survives").at(static_cast<std::size_t>(bits)).get<bool>();
      if (seen == gone.empty()) continue;
      return fmt::format(
          "without {}, survives is {}, but {}",
          lost.empty() ? "any loss" : ranks_in_words({lost.begin(), lost.end()}), seen,
          gone.empty() ? "the others hold every piece" : "nobody holds " + name_of(*gone.begin()));
    }
    return "";
  });
}

// ---- A step ----

Json collect_step(World&) {
  Json all = Json::array();
  for (const Strategy strategy : strategies) {
    Json actions = Json::array();
    for (const Action action : student_step(strategy)) actions.push_back(static_cast<int>(action));
    all.push_back(actions);
  }
  return all;
}

// All states of ranks that take the same actions, step after step. Rank r holds the copy of its
// left neighbour's shard. A state is how many actions each rank has done.
class Steps {
 public:
  Steps(Strategy strategy, std::vector<Action> actions, int ranks)
      : strategy_(strategy), actions_(std::move(actions)), ranks_(ranks) {}

  // The first state, by the number of actions, in which the loss of a rank loses a step; or "".
  std::string fault() const;

 private:
  using State = std::vector<int>;

  int length() const { return static_cast<int>(actions_.size()); }
  int index_of(Action action) const {
    return static_cast<int>(std::find(actions_.begin(), actions_.end(), action) - actions_.begin());
  }
  int steps_of(int done) const { return done / length(); }
  // Whether the step that is under way has done it. Never, if it is not among the actions.
  bool has_done(int done, Action action) const { return done % length() > index_of(action); }
  int copied_by(int rank) const { return (rank + ranks_ - 1) % ranks_; }

  bool can_go_on(const State& state, int rank) const;
  // The newest step of a piece that the rank holds; -1: it does not hold it.
  int version(const Piece& piece, int rank, int done) const;
  bool has_gradient(int shard, int step, int rank, int done) const;
  // Whether the ranks but `lost` can make the piece of this step.
  bool is_there(const Piece& piece, int step, const State& state, int lost) const;
  std::string fault_of(const State& state, int lost) const;

  Strategy strategy_;
  std::vector<Action> actions_;
  int ranks_;
};

bool Steps::can_go_on(const State& state, int rank) const {
  const int done = state[static_cast<std::size_t>(rank)];
  const Action next = actions_[static_cast<std::size_t>(done % length())];
  if (next == Action::send_gradient || next == Action::send_state)
    return state[static_cast<std::size_t>(copied_by(rank))] >= done;
  if (next == Action::reduce || next == Action::agree || next == Action::gather)
    return std::all_of(state.begin(), state.end(), [&](int other) { return other >= done; });
  return true;
}

int Steps::version(const Piece& piece, int rank, int done) const {
  const int steps = steps_of(done);
  const bool all = strategy_ == Strategy::data_parallel;
  if (all || piece.shard == rank) return steps + (has_done(done, Action::update) ? 1 : 0);
  const bool gathered = strategy_ != Strategy::zero3 && piece.kind == Kind::parameters;
  const bool copied = piece.shard == copied_by(rank);
  if (!gathered && !copied) return -1;
  const bool new_copy =
      copied && (has_done(done, Action::update_copy) || has_done(done, Action::send_state));
  return steps + (new_copy || (gathered && has_done(done, Action::gather)) ? 1 : 0);
}

// The gradient with which `step` is reached from the one before.
bool Steps::has_gradient(int shard, int step, int rank, int done) const {
  const bool everything = strategy_ == Strategy::data_parallel || strategy_ == Strategy::zero1;
  const bool is_old = !has_done(done, Action::compute);  // of the step before, and still there
  if (step != steps_of(done) + (is_old ? 0 : 1)) return false;
  const auto has = [&](Action action) { return is_old || has_done(done, action); };
  if (everything || shard == rank) return has(Action::reduce);
  return shard == copied_by(rank) && index_of(Action::send_gradient) < length() &&
         has(Action::send_gradient);
}

bool Steps::is_there(const Piece& piece, int step, const State& state, int lost) const {
  bool has_piece = false, has_its_gradient = false;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == lost) continue;
    const int done = state[static_cast<std::size_t>(rank)];
    has_piece = has_piece || version(piece, rank, done) == step;
    has_its_gradient = has_its_gradient || has_gradient(piece.shard, step, rank, done);
  }
  if (has_piece || step == 0) return has_piece;
  // AdamW makes moments of the moments before and the gradient, and parameters of the parameters
  // before and the moments.
  if (piece.kind == Kind::moments)
    return has_its_gradient && is_there(piece, step - 1, state, lost);
  return is_there({Kind::moments, piece.shard}, step, state, lost) &&
         is_there(piece, step - 1, state, lost);
}

std::string Steps::fault_of(const State& state, int lost) const {
  const auto [least, most] = std::minmax_element(state.begin(), state.end());
  const int newest = steps_of(*most);
  std::vector<std::string> lacking;
  // A step that a rank has ended is not taken again.
  for (int step = newest; step <= newest + 1; ++step) {
    Pieces gone;
    for (int shard = 0; shard < ranks_; ++shard)
      for (const Kind kind : {Kind::parameters, Kind::moments})
        if (!is_there({kind, shard}, step, state, lost)) gone.insert({kind, shard});
    if (gone.empty()) return "";
    lacking.push_back(fmt::format("of step {} nobody has {}", step, name_of(*gone.begin())));
  }
  std::vector<std::string> where;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int done = state[static_cast<std::size_t>(rank)];
    const std::string last =
        done == 0 ? "nothing"
                  : fmt::format("{} of step {}",
                                name_of(actions_[static_cast<std::size_t>((done - 1) % length())]),
                                (done - 1) / length() + 1);
    where.push_back(fmt::format("rank {} has done {}", rank, last));
  }
  return fmt::format("{} ranks, rank {} is lost when {}: {}", ranks_, lost, fmt::join(where, ", "),
                     fmt::join(lacking, ", and "));
}

std::string Steps::fault() const {
  std::set<State> known;
  std::queue<State> next;
  const auto meet = [&](const State& state) {
    if (known.insert(state).second) next.push(state);
  };
  for (meet(State(static_cast<std::size_t>(ranks_), 0)); !next.empty(); next.pop()) {
    const State state = next.front();
    for (int lost = 0; lost < ranks_; ++lost)
      if (const std::string found = fault_of(state, lost); !found.empty()) return found;
    for (int rank = 0; rank < ranks_; ++rank) {
      State after = state;
      if (++after[static_cast<std::size_t>(rank)] <= 2 * length() && can_go_on(state, rank))
        meet(after);
    }
  }
  return "";
}

// What is wrong with the actions before anybody is lost, or "".
std::string fault_of_actions(Strategy strategy, const std::vector<Action>& actions) {
  const auto place = [&](Action action) {
    return std::find(actions.begin(), actions.end(), action) - actions.begin();
  };
  const auto has = [&](Action action) {
    return place(action) < static_cast<std::ptrdiff_t>(actions.size());
  };
  for (const Action action : actions)
    if (std::count(actions.begin(), actions.end(), action) > 1)
      return fmt::format("{} stands there {} times", name_of(action),
                         std::count(actions.begin(), actions.end(), action));
  const bool has_copies = strategy != Strategy::data_parallel;
  const bool gathers = strategy == Strategy::zero1 || strategy == Strategy::zero2;
  if (!has_copies)
    for (const Action action : {Action::send_gradient, Action::send_state, Action::update_copy})
      if (has(action)) return fmt::format("there is no copy for {}", name_of(action));
  if (has(Action::gather) && !gathers)
    return has_copies ? "no rank has whole parameters after the step, so there is no gather"
                      : "every rank updates all parameters, so there is no gather";
  for (const Action action : {Action::compute, Action::reduce, Action::update})
    if (!has(action)) return fmt::format("{} is missing", name_of(action));
  if (gathers && !has(Action::gather))
    return "gather is missing: the next forward needs all parameters";
  if (has_copies && !has(Action::update_copy) && !has(Action::send_state))
    return "after the step the copies are those of the step before";
  const auto before = [&](Action first, Action second) -> std::string {
    if (!has(first) || !has(second) || place(first) < place(second)) return "";
    return fmt::format("{} comes before {}, whose result it needs", name_of(second),
                       name_of(first));
  };
  for (const auto& [first, second] :
       {std::pair(Action::compute, Action::reduce), std::pair(Action::reduce, Action::update),
        std::pair(Action::reduce, Action::send_gradient), std::pair(Action::update, Action::gather),
        std::pair(Action::update, Action::send_state),
        std::pair(strategy == Strategy::zero1 ? Action::reduce : Action::send_gradient,
                  Action::update_copy)})
    if (const std::string fault = before(first, second); !fault.empty()) return fault;
  if (strategy != Strategy::zero1 && has(Action::update_copy) && !has(Action::send_gradient))
    return "update_copy has no gradient: it is on the rank that owns the shard";
  return "";
}

Verdict judge_step(const Run& run) {
  for (const Strategy strategy : strategies) {
    std::vector<Action> actions;
    for (const Json& each : run.ranks[0].at(static_cast<std::size_t>(strategy))) {
      const int number = each.get<int>();
      if (number < 0 || number >= static_cast<int>(action_names.size()))
        return {{fmt::format("{}: {} is no action", name_of(strategy), number)}};
      actions.push_back(static_cast<Action>(number));
    }
    std::string fault = fault_of_actions(strategy, actions);
    for (int ranks = 2; fault.empty() && ranks <= 4; ++ranks)
      fault = Steps(strategy, actions, ranks).fault();
    const auto sends = [&](Action action) {
      return std::find(actions.begin(), actions.end(), action) != actions.end();
    };
    const double numbers =
                     (sends(Action::send_gradient) ? 1 : 0) + (!sends(Action::send_state)    ? 0
                                                               : strategy == Strategy::zero3 ? 3
                                                                                             : 2),
                 enough = backup::cost(strategy, 1, 1).sent / 4;
    if (fault.empty() && numbers > enough)
      fault = fmt::format("a step sends {} numbers for each parameter of a shard, {} are enough",
                          numbers, enough);
    if (fault.empty()) continue;
    std::vector<std::string> names;
    for (const Action action : actions) names.push_back(name_of(action));
    return Verdict({fmt::format("{}: {}", name_of(strategy), fault)},
                   "the step: " + in_words(names) + "\n");
  }
  return {};
}

// ---- Bytes ----

struct Size {
  double parameters;
  int ranks;
};

// Llama 3 8B on 8 ranks, and five of the student's own.
std::vector<Size> sizes(std::uint64_t seed) {
  std::vector<Size> all = {{8.03e9, 8}};
  for (std::uint64_t i = 0; i < 5; ++i)
    all.push_back({1e6 * (1 + static_cast<double>((seed >> 8 * i) % 251)),
                   2 + static_cast<int>((seed >> 7 * i) % 63)});
  return all;
}

Json collect_cost(World& world) {
  Json all = Json::array();
  for (const Size& size : sizes(world.seed()))
    for (const Strategy strategy : strategies) {
      const Bytes bytes = student_cost(strategy, size.parameters, size.ranks);
      all.push_back({bytes.kept, bytes.sent});
    }
  return all;
}

Verdict judge_cost(const Run& run) {
  std::size_t at = 0;
  for (const Size& size : sizes(run.seed))
    for (const Strategy strategy : strategies) {
      const Json& seen = run.ranks[0].at(at++);
      const Bytes right = backup::cost(strategy, size.parameters, size.ranks);
      for (const auto& [name, value, expected] :
           {std::tuple("kept", seen[0], right.kept), std::tuple("sent", seen[1], right.sent)}) {
        if (!value.is_null() &&
            std::abs(value.get<double>() - expected) <= 1e-9 * std::max(1.0, expected))
          continue;
        return {{fmt::format(
            "{}, P = {:g}, {} ranks: {} is {} bytes, expected {:.6g}", name_of(strategy),
            size.parameters, size.ranks, name,
            value.is_null() ? "no finite number of" : fmt::format("{:.6g}", value.get<double>()),
            expected)}};
      }
    }
  return {};
}

const Judge judge("41-neighbours-copy", {{"held", collect_held, judge_held},
                                         {"copies", collect_copies, judge_copies},
                                         {"lost", collect_lost, judge_lost},
                                         {"step", collect_step, judge_step},
                                         {"cost", collect_cost, judge_cost}});

}  // namespace
}  // namespace ringside::exercises

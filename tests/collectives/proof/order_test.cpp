// The order of additions as an expression.

#include "collectives/proof/order.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/proof/lockstep.hpp"

namespace ringside::collectives {

TEST_CASE("orders of additions, as they are written") {
  const auto of = [](Collective collective, const char* name, int size, int root = 0) {
    return orders_of_additions(find_algorithm(collective, name), size, root);
  };
  using Orders = std::vector<std::string>;
  using enum Collective;
  CHECK(of(all_reduce, "ring", 3) == Orders{"((1+2)+0)", "((0+2)+1)", "((0+1)+2)"});
  CHECK(of(reduce_scatter, "ring", 3) == of(all_reduce, "ring", 3));
  CHECK(of(all_reduce, "recursive_doubling", 4) == Orders{"((0+1)+(2+3))"});
  CHECK(of(all_reduce, "halving_doubling", 4) == Orders(4, "((0+2)+(1+3))"));
  CHECK(of(all_reduce, "halving_doubling", 6) == Orders(6, "(((0+1)+4)+((2+3)+5))"));
  CHECK(of(reduce, "halving", 6, 3) == of(all_reduce, "halving_doubling", 6));
  CHECK(of(reduce, "binomial", 4, 1) == Orders{"((0+3)+(1+2))"});
  CHECK(of(all_reduce, "one_shot", 11)[0].find("+10)") != std::string::npos);
  CHECK(of(all_reduce, "ring", 1) == Orders{"0"});
  CHECK_THROWS_WITH_AS(of(all_gather, "ring", 3),
                       "all_gather adds nothing: only all_reduce, reduce_scatter and reduce do",
                       Error);
  const Algorithm wrong{.collective = all_reduce, .name = "short", .make = [](int, int, int) {
                          return Schedule{.chunks = 1, .steps = {}};
                        }};
  CHECK_THROWS_WITH_AS(orders_of_additions(wrong, 2),
                       "short all_reduce, 2 ranks: at the end chunk 0 on rank 0 lacks rank 1",
                       Error);
}

TEST_CASE("a sum that holds a rank twice is not written out") {
  std::vector<RankState> states = start_with_contributions(2, 1);
  const Step swap{.send = Send{.to = 1, .chunks = {0}},
                  .receive = Receive{.from = 1, .chunks = {0}, .action = Action::add}};
  Step back = swap;
  back.send->to = back.receive->from = 0;
  const std::vector<Schedule> schedules{{.chunks = 1, .steps = {swap, swap, swap}},
                                        {.chunks = 1, .steps = {back, back, back}}};
  run_step(schedules, 0, states);
  CHECK(states[1].sums[0] == "(0+1)");
  for (const int step : {1, 2}) run_step(schedules, step, states);
  CHECK(states[1].sums[0] == "(a rank twice)");
}

TEST_CASE("more ranks add alike if each rank of the fewer brings equal shares") {
  using Shares = std::vector<std::string>;
  const auto shares = [](const char* name, int few, int many) {
    const Algorithm& algorithm = find_algorithm(Collective::all_reduce, name);
    return shares_of(orders_of_additions(algorithm, few)[0],
                     orders_of_additions(algorithm, many)[0]);
  };
  CHECK(shares("halving_doubling", 4, 8) == Shares{"(0+4)", "(1+5)", "(2+6)", "(3+7)"});
  CHECK(shares("recursive_doubling", 4, 8) == Shares{"(0+1)", "(2+3)", "(4+5)", "(6+7)"});
  CHECK(shares("halving_doubling", 2, 8) == Shares{"((0+4)+(2+6))", "((1+5)+(3+7))"});
  CHECK(shares("ring", 4, 8) == std::nullopt);
  CHECK(shares("halving_doubling", 4, 6) == std::nullopt);
  CHECK(shares_of("((0+1)+2)", "((0+1)+2)") == Shares{"0", "1", "2"});
  CHECK(shares_of("((0+1)+2)", "((0+2)+1)") == std::nullopt);
  CHECK(shares_of("((0+1)+2)", "((2+0)+1)") == std::nullopt);
}

}  // namespace ringside::collectives

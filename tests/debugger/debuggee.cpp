// A program to be debugged: printers_test.cpp runs it under gdb. It has debug information in every
// build type, and so have the sources of the project that CMakeLists.txt compiles into it.
//
//     debuggee step      a ring all-reduce of 4 ranks in lockstep
//     debuggee values    a tensor, a call and others
//     debuggee threads   an all-reduce of 3 ranks as threads
//     debuggee tcp       an all-reduce of 2 ranks over tcp, threads of this process
//     debuggee rank      one rank of a job, as the environment describes it: an all-reduce
//     debuggee ddp       a backward with buckets, on 2 ranks as threads
//     debuggee fsdp      a forward with sharded parameters, on 2 ranks as threads
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/algorithms/catalogue.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/call.hpp"
#include "collectives/execution/executor.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/proof/lockstep.hpp"
#include "collectives/ranks/run_threads.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "ddp/bucketed.hpp"
#include "tests/parallel/toy_nets.hpp"
#include "zero/zero3.hpp"

using namespace ringside;

// Where the tests stop to look at a value.
template <class T>
void look_at(const T& value) {
  std::printf("%p\n", static_cast<const void*>(&value));
}

namespace {

void step() {
  using namespace collectives;
  const Algorithm& algorithm = find_algorithm(Collective::all_reduce, "ring");
  const std::vector<Schedule> schedules = make_schedules(algorithm, 4);
  std::vector<RankState> states = start_with_contributions(4, schedules[0].chunks);
  run_all_steps(schedules, states);
  look_at(states[0]);
}

void values() {
  using autograd::Tensor;
  const Tensor matrix = Tensor::from({1.5f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3});
  look_at(matrix);
  look_at(matrix.transpose(0, 1));
  Tensor half = Tensor::full({2}, -0.5, autograd::DType::bf16);
  look_at(half.set_requires_grad(true));
  look_at(Tensor{});
  const Tensor gone = Tensor::zeros({4});
  gone.storage()->drop();
  look_at(gone);
  look_at(Tensor::full({10}, 7, autograd::DType::int32, autograd::Device::emulated));
  const auto& algorithms = collectives::all_algorithms();
  const collectives::Algorithm& chain =
      collectives::find_algorithm(collectives::Collective::broadcast, "chain");
  collectives::Call call{.collective = collectives::Collective::all_reduce,
                         .algorithm = 0,
                         .type = collectives::DataType::bf16,
                         .count = 100,
                         .label = collectives::Label("model.norm.weight")};
  look_at(call);
  look_at(collectives::Call{.collective = collectives::Collective::broadcast,
                            .algorithm = static_cast<std::uint8_t>(&chain - algorithms.data()),
                            .root = 2,
                            .count = 5,
                            .label = {}});
  look_at(collectives::ChunkRange{4, 4});
  look_at(collectives::circular(6, 3, 1, 8));
  look_at(collectives::Chunks::even(10, 4));
}

void threads(const collectives::GroupOptions& options) {
  collectives::run_threads(
      3,
      [](collectives::ProcessGroup& group) {
        std::vector<float> numbers(30, 1);
        group.all_reduce(std::span(numbers), collectives::ReduceOp::sum);
      },
      options);
}

// A port that nobody uses.
std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), length);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(socket);
  return ntohs(address.sin_port);
}

void tcp(const collectives::GroupOptions& options) {
  collectives::RankInfo rank_info;
  rank_info.size = rank_info.local_size = 2;
  rank_info.master_port = free_port();
  const auto run_rank = [&options](collectives::RankInfo self, int rank) {
    self.rank = self.local_rank = rank;
    auto group = collectives::ProcessGroup::over("tcp", self, options);
    std::vector<float> numbers(30, 1);
    group.all_reduce(std::span(numbers));
    group.finish();
  };
  std::thread other(run_rank, rank_info, 1);
  run_rank(rank_info, 0);
  other.join();
}

void rank() {
  auto group = collectives::ProcessGroup::from_environment();
  std::vector<float> numbers(30, 1);
  group.all_reduce(std::span(numbers));
  group.finish();
}

tests::Tensor loss_of(const tests::ToyNet& net) {
  return sum(net.forward(tests::Tensor::full({3, 10}, 0.25)));
}

void ddp_backward(const collectives::GroupOptions& options) {
  collectives::run_threads(
      2,
      [](collectives::ProcessGroup& group) {
        tests::ToyNet net(7, autograd::DType::fp32);
        ddp::Bucketed parallel(net, group, 1e-3);
        backward(loss_of(net));
        look_at(parallel.buckets()[0]);
        parallel.finish();
      },
      options);
}

void fsdp_forward(const collectives::GroupOptions& options) {
  collectives::run_threads(
      2,
      [](collectives::ProcessGroup& group) {
        tests::ToyNet net(7, autograd::DType::fp32);
        zero::Zero3 parallel(net, group, {{"fc1", &net.fc1}, {"fc2", &net.fc2}});
        look_at(parallel.plan());
        backward(loss_of(net));
        parallel.finish();
      },
      options);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view what = count == 2 ? arguments[1] : "";
  collectives::GroupOptions options;
  options.executor.kind = collectives::ExecutorKind::simple;
  options.algorithms = collectives::AlgorithmSelection("all_reduce=ring");
  if (what == "step") step();
  if (what == "values") values();
  if (what == "threads") threads(options);
  if (what == "tcp") tcp(options);
  if (what == "rank") rank();
  if (what == "ddp") ddp_backward(options);
  if (what == "fsdp") fsdp_forward(options);
  return what.empty() ? 1 : 0;
}

// Memory that NCCL allocates and registers, as the stand-in has it, and how Ringside uses it.
#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nccl.h>

#include "base/cuda.hpp"
#include "collectives/backends/nccl.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/process_group.hpp"
#include "collectives/ranks/run_threads.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

// Before the first call of the stand-in, which then has as many GPUs.
const int has_gpus = ::setenv("RINGSIDE_STANDIN_DEVICES", "4", 1);

// Calls body(communicator) on each rank, a thread with a GPU of its own.
template <class Body>
void on_each_rank(int size, const Body& body) {
  REQUIRE(has_gpus == 0);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  run_on_threads(size, [&](int rank) {
    check_cuda(cudaSetDevice(rank), "choosing a GPU");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclComm_t communicator = nullptr;
    REQUIRE(ncclCommInitRankConfig(&communicator, size, id, rank, &config) == ncclSuccess);
    body(communicator, rank);
    REQUIRE(ncclCommDestroy(communicator) == ncclSuccess);
  });
}

ncclResult_t make_window(ncclComm_t communicator, void* data, std::size_t bytes,
                         ncclWindow_t& window) {
  return ncclCommWindowRegister(communicator, data, bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
}

}  // namespace

TEST_CASE("the stand-in's NCCL refuses memory that is not its own, and frees none that is in use") {
  on_each_rank(1, [](ncclComm_t communicator, int) {
    void *plain = nullptr, *own = nullptr, *handle = nullptr;
    ncclWindow_t window = nullptr;
    REQUIRE(cudaMalloc(&plain, 8192) == cudaSuccess);
    REQUIRE(ncclMemAlloc(&own, 8192) == ncclSuccess);
    CHECK(make_window(communicator, plain, 8192, window) == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(communicator)) == "expected memory of ncclMemAlloc");
    CHECK(make_window(communicator, own, 8193, window) == ncclInvalidUsage);
    CHECK(make_window(communicator, static_cast<std::byte*>(own) + 4, 16, window) ==
          ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(communicator)) == "a window begins at a page");
    CHECK(ncclMemFree(plain) == ncclInvalidUsage);

    REQUIRE(make_window(communicator, own, 8192, window) == ncclSuccess);
    REQUIRE(ncclCommRegister(communicator, own, 8192, &handle) == ncclSuccess);
    CHECK(ncclCommDestroy(communicator) == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(communicator)) == "memory is still registered");
    CHECK(ncclMemFree(own) == ncclInvalidUsage);
    CHECK(ncclCommDeregister(communicator, window) == ncclInvalidUsage);
    CHECK(ncclCommDeregister(communicator, handle) == ncclSuccess);
    CHECK(ncclCommDeregister(communicator, handle) == ncclInvalidUsage);
    CHECK(ncclCommWindowDeregister(communicator, window) == ncclSuccess);
    CHECK(ncclCommWindowDeregister(communicator, window) == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(communicator)) == "no such window");
    CHECK(ncclMemFree(own) == ncclSuccess);
    CHECK(ncclMemFree(own) == ncclInvalidUsage);
    CHECK(cudaFree(plain) == cudaSuccess);
  });
}

TEST_CASE("the stand-in's windows are made by all ranks, with one length") {
  for (const int size : {2, 3, 4}) {
    on_each_rank(size, [&](ncclComm_t communicator, int rank) {
      void* own = nullptr;
      REQUIRE(ncclMemAlloc(&own, 8192) == ncclSuccess);
      for (const bool equal : {true, false, true}) {
        ncclWindow_t window = nullptr;
        const std::size_t bytes = equal || rank != size - 1 ? 8192 : 4096;
        CHECK(make_window(communicator, own, bytes, window) ==
              (equal ? ncclSuccess : ncclInvalidUsage));
        CHECK(ncclCommWindowDeregister(communicator, window) == ncclSuccess);
      }
      CHECK(ncclMemFree(own) == ncclSuccess);
    });
  }
}

TEST_CASE("the nccl backend gives buffers that NCCL knows") {
  for (const NcclMemory memory :
       {NcclMemory::plain, NcclMemory::registered, NcclMemory::symmetric}) {
    for (const bool blocking : {true, false}) {
      const int size = 3;
      const auto world = make_threads_world(size);
      run_on_threads(size, [&](int rank) {
        ProcessGroup meeting = ProcessGroup::over(connect_threads(world, rank), {});
        const auto backend =
            make_nccl_backend(meeting, rank, {.memory = memory, .blocking = blocking});
        Call call;
        call.collective = Collective::all_reduce;
        call.count = 3000;
        cuda::DeviceBuffer input = backend->allocate(call.count * sizeof(float)),
                           output = backend->allocate(call.count * sizeof(float));
        std::vector<float> numbers(call.count, static_cast<float>(rank + 1));
        input.copy_from(numbers.data(), input.bytes());
        backend->run(call, input.data(), output.data());
        output.copy_to(numbers.data(), output.bytes());
        CHECK(numbers == std::vector<float>(call.count, 6));
      });
    }
  }
}

TEST_CASE(
    "the stand-in's NCCL starts the calls of a group at its end, and knows no end without one") {
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  on_each_rank(2, [](ncclComm_t communicator, int rank) {
    cuda::DeviceBuffer numbers(sizeof(float)), sum(sizeof(float));
    const auto mine = static_cast<float>(rank + 1);
    numbers.copy_from(&mine, sizeof mine);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    REQUIRE(ncclAllReduce(numbers.data(), sum.data(), 1, ncclFloat32, ncclSum, communicator,
                          nullptr) == ncclSuccess);
    CHECK(cudaStreamQuery(nullptr) == cudaSuccess);  // nothing has begun
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    float seen = 0;
    sum.copy_to(&seen, sizeof seen);
    CHECK(seen == 3);
  });
}

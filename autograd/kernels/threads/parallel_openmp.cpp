#include <omp.h>

#include <exception>

#include "autograd/kernels/threads/parallel.hpp"

namespace ringside::autograd {

bool in_loop() {
  return omp_in_parallel() != 0;
}

void parallel_for_pieces(std::int64_t count, std::int64_t grain,
                         const std::function<void(int, std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const int pieces = pieces_of(count, grain);
  if (pieces == 1) return body(0, 0, count);  // without OpenMP: a debugger steps straight in
  std::exception_ptr error;
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
  for (int piece = 0; piece < pieces; ++piece) {
    try {
      body(piece, count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
#pragma omp critical(ringside_parallel_for_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ringside::autograd

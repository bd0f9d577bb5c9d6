// The main function of a program of several ranks: processes, or for a debugger threads.
//
//     int main(int count, char** arguments) {
//       return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
//         ... what each rank does ...
//       });
//     }
//
//     ringside launch -n 4 -- ./program       each rank is a process (torchrun, mpirun, srun, too)
//     gdb --args ./program --threads          four ranks are threads of one process, which gdb
//                                             stops together; --threads 2: two
//     ... --as-it-comes                       each rank prints when it comes to the line
#pragma once

#include <functional>

#include "collectives/process_group.hpp"
#include "collectives/ranks/rank_printer.hpp"

namespace ringside::collectives {

// Runs `body` on every rank that is this process, or a thread of it, then finish(). Returns the
// exit status: 1 if `body` throws on a rank, whose cause stderr and all other ranks get; 2 if the
// arguments are others than the above.
int run_ranks(int count, const char* const* arguments,
              const std::function<void(ProcessGroup& group, const RankPrinter& print)>& body);

}  // namespace ringside::collectives

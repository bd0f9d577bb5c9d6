// A plugin: a Backend of your own in a shared library, for collectives that are no schedule.
//
//     class Mine : public ringside::collectives::Backend { ... };
//     extern "C" ringside::collectives::MakeBackend* const ringside_backend =
//         ringside::collectives::backend_of<Mine>;
//
//     c++ -std=c++20 -O2 -fPIC -shared -I PREFIX/include/ringside mine.cpp -o mine.so
//     ringside bench all_reduce --plugin ./mine.so
//
// Mine's constructor takes the RankInfo of its rank, and connects with the others; its functions
// are those of execution/backend.hpp. docs/your_own.md has a whole one.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives {

using MakeBackend = std::unique_ptr<Backend>(const RankInfo& rank_info);

template <class Mine>
std::unique_ptr<Backend> backend_of(const RankInfo& rank_info) {
  return std::make_unique<Mine>(rank_info);
}

// The variable ringside_backend of the library, which is never closed. Throws Error if it cannot be
// loaded or has no such variable.
MakeBackend* load_plugin(const std::string& library);

}  // namespace ringside::collectives

// Replaces gloo.cpp in a build without Gloo.
#include "bench/backends/library_backends.hpp"

namespace ringside::cli {

bool gloo_is_here() {
  return false;
}

std::unique_ptr<collectives::Backend> make_gloo_backend(const collectives::RankInfo&) {
  fail("this build has no Gloo: install libgloo-dev, then configure and build again");
}

}  // namespace ringside::cli

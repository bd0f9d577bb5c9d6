#!/usr/bin/env bash
# The loops of softmax and sigmoid are vectorised with AVX2, too: vectorised_exp_test.sh SOURCES COMPILER OPTION...
set -euo pipefail
sources=$1 compiler=$2
shift 2
options=()  # without empty ones, which CMake 3.31 leaves where a condition does not hold
for each in "$@"; do [ -z "$each" ] || options+=("$each"); done
code=$("$compiler" -x c++ -std=c++20 -O3 "${options[@]}" -march=x86-64-v3 "-I$sources" -S -o - - <<'EOF'
#include "autograd/kernels/exp.hpp"
void sigmoids(const float* x, float* y, long n) {
#pragma omp simd
  for (long i = 0; i < n; ++i) y[i] = ringside::autograd::sigmoid(x[i]);
}
EOF
)
grep -Eq 'v(mulps|fn?m(add|sub)[0-9]+ps).*%ymm' <<<"$code" || {
  echo "expected products of eight numbers (ymm) in the loop, found:"
  grep -E 'v?(mul|fn?m(add|sub)[0-9]+)[ps]s' <<<"$code" | head -n 5
  exit 1
}

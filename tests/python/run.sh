#!/usr/bin/env bash
# run.sh MODULE PACKAGE FILE CASE: runs a test of FILE with a Python that has MODULE, over the package
# of this build.
set -euo pipefail
for python in "${RINGSIDE_TORCH_PYTHON:-python3}" python3; do
  if "$python" -c "import $1" 2>/dev/null; then
    PYTHONPATH=$2 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 exec "$python" "$(dirname "$0")/$3" "$4"
  fi
done
package=${1/#z3/z3-solver}
echo "SKIPPED: ${RINGSIDE_TORCH_PYTHON:-python3} has no $1: pip install $package, or name a Python with $1 in RINGSIDE_TORCH_PYTHON"
exit 77

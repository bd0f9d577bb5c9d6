#!/usr/bin/env bash
# run.sh PACKAGE FILE CASE: runs a test of FILE with a Python that has torch, over the package of
# this build.
set -euo pipefail
python=${RINGSIDE_TORCH_PYTHON:-python3}
"$python" -c 'import torch' 2>/dev/null || {
  echo "SKIPPED: $python has no torch: pip install torch, or name a Python with torch in RINGSIDE_TORCH_PYTHON"
  exit 77
}
PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 exec "$python" "$(dirname "$0")/$2" "$3"

#!/usr/bin/env bash
# run.sh MODULE PACKAGE ARGUMENTS...: pytest with a Python that has MODULE, over the package of this
# build.
set -euo pipefail
for python in python3 /usr/bin/python3 "${RINGSIDE_TORCH_PYTHON:-python3}"; do
  if "$python" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' pytest "$1" 2>/dev/null; then
    export PYTHONPATH=$2 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
    exec "$python" -m pytest --quiet -rs --no-header -p no:cacheprovider "${@:3}"
  fi
done
packages=${1/#z3/z3-solver}
[ "$1" = pytest ] || packages="pytest $packages"
echo "SKIPPED: python3 has not all of $packages: pip install $packages, or name a Python that has what is missing in RINGSIDE_TORCH_PYTHON"

#!/usr/bin/env bash
# Makes .venv and installs the pinned dependencies. A torch that the chosen interpreter already has is used where its
# version fits (then the environment sees that interpreter's packages); otherwise pip brings the pinned one.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1

fitting_torch() {
    "$python" - <<'PROBE'
import importlib.metadata, sys
try:
    version = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    sys.exit(1)
sys.exit(not version.startswith("2.13."))
PROBE
}

options=()
skip=()
if fitting_torch; then
    echo "environment: using the torch that $python has"
    options=(--system-site-packages)
    skip=(--without torch)
fi

base=$("$python" -c 'import sys; print(sys.base_prefix, sys.version)'; echo "${options[*]:-}")
if [ "$(cat .venv/.base 2>/dev/null)" != "$base" ]; then
    "$python" -m venv --clear "${options[@]}" .venv
    echo "$base" >.venv/.base
fi
mapfile -t requirements < <(.venv/bin/python tools/requirements.py torch dev "${skip[@]}")
.venv/bin/python -m pip install --constraint constraints.txt "${requirements[@]}"

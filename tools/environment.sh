#!/usr/bin/env bash
# Makes .venv and installs the pinned dependencies of the extras named. A torch that the chosen interpreter already has is used where its
# version fits: the folder it lies in is put on the environment's path, behind the environment's own packages.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1

# Prints the folder of the interpreter's torch, or nothing where it has none that fits. The range is pyproject.toml's.
fitting_torch() {
    "$python" - <<'PROBE'
import importlib.metadata

try:
    torch = importlib.metadata.distribution("torch")
except importlib.metadata.PackageNotFoundError:
    pass
else:
    if torch.version.startswith("2.13."):
        print(torch.locate_file(""))
PROBE
}

borrowed=$(fitting_torch)
base=$("$python" -c 'import sys; print(sys.prefix, sys.version)')$borrowed
if [ "$(cat .venv/.base 2>/dev/null)" != "$base" ]; then
    "$python" -m venv --clear .venv
    echo "$base" >.venv/.base
fi

# While the torch of another folder is on the path, pip takes the tools of that folder for installed, but not their
# commands: it goes on only when everything else is there.
borrowing=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth
rm -f "$borrowing"
mapfile -t requirements < <(.venv/bin/python tools/requirements.py "$@")
if [ -z "$borrowed" ]; then
    .venv/bin/python -m pip install --constraint constraints.txt "${requirements[@]}"
    exit
fi
echo "environment: using the torch in $borrowed"
mapfile -t requirements < <(printf '%s\n' "${requirements[@]}" | grep -v '^torch[<>=]')
.venv/bin/python -m pip install --constraint constraints.txt "${requirements[@]}"
echo "$borrowed" >"$borrowing"

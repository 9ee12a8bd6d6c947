#!/usr/bin/env bash
# Builds the native module under AddressSanitizer and UndefinedBehaviorSanitizer into build/sanitize, and runs the
# kernels' tests on it. They need NumPy, not torch (torch's own allocations would drown the sanitizer).
#
# The environment of this build is one of its own that borrows the packages of .venv by path: .venv's editable install
# works through an import hook, which goes before every path, in child processes too, and would bring the ordinary build.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$(pwd)
folder=$root/build/sanitize
site=$folder/site
compiler=${CXX:-c++}

.venv/bin/cmake -S . -B "$folder/native" -G Ninja --log-level=WARNING \
    -DCMAKE_MAKE_PROGRAM="$root/.venv/bin/ninja" -DPython_EXECUTABLE="$root/.venv/bin/python" \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug -DLOWTIDE_SANITIZE=ON
.venv/bin/cmake --build "$folder/native"

rm -rf "$site"
mkdir -p "$site"
cp -R src/lowtide "$site/lowtide"
.venv/bin/cmake --install "$folder/native" --prefix "$site"

.venv/bin/python -m venv --without-pip "$folder/venv"
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
borrowing=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$site" "$packages" >"$borrowing/borrowed.pth"
if [ -e "$packages/borrowed.pth" ]; then # what .venv itself borrows, see environment.sh
    cat "$packages/borrowed.pth" >>"$borrowing/borrowed.pth"
fi

# The runtime must be there before anything allocates, and libstdc++ before it looks for the functions it wraps.
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)"
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
# Python's own pool would hide overruns inside a block from the sanitizer.
export PYTHONMALLOC=malloc

"$folder/venv/bin/python" - "$site" <<'CHECK'
import sys, lowtide.kernels._native as native
assert native.__file__.startswith(sys.argv[1]), f"the ordinary build was loaded: {native.__file__}"
CHECK
# --capture=sys: the report of a sanitizer that ends the process is written to file descriptor 2.
exec "$folder/venv/bin/python" -m pytest tests/kernels -q --capture=sys --hypothesis-profile=sanitize -p no:cacheprovider

#!/usr/bin/env bash
# Looks for what the build cannot bring itself: Python 3.11+ with venv and headers, make, a C++17 compiler, disk space.
# Says what lacks, prints the one apt line that mends it, and exits with 1. PYTHON= and CXX= choose other tools.
set -u
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
compiler=${CXX:-c++}
need_mb=5000       # environment with the CPU build of torch and TensorFlow, package caches and build folders
cuda_need_mb=14000 # the same with the CUDA build, whose NVIDIA libraries are several GB
missing=()
packages=()

lacks() { # lacks <what> [apt package ...]
    missing+=("$1")
    shift
    packages+=("$@")
}

check_python() {
    if ! command -v "$python" >/dev/null 2>&1; then
        lacks "an interpreter named '$python' (PYTHON= chooses another)" python3 python3-venv python3-dev
        return
    fi
    local version
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || {
        lacks "a working Python: '$python' does not start (PYTHON= chooses another)" python3 python3-venv python3-dev
        return
    }
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        lacks "Python 3.11 or newer: '$python' is $version (then call: make PYTHON=python3.11 ...)" \
            python3.11 python3.11-venv python3.11-dev
        return
    fi
    "$python" -c 'import ensurepip, venv' 2>/dev/null || lacks "the venv module of $python" "python$version-venv"
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        lacks "the header files of $python (Python.h)" "python$version-dev"
}

check_make() {
    command -v make >/dev/null 2>&1 || lacks "make" make
}

check_compiler() {
    local folder
    folder=$(mktemp -d)
    printf '#include <string_view>\nint main() { if constexpr (sizeof(int) > 1) return std::string_view("").size(); }\n' \
        >"$folder/probe.cpp"
    "$compiler" -std=c++17 "$folder/probe.cpp" -o "$folder/probe" >/dev/null 2>&1 ||
        lacks "a C++17 compiler: '$compiler' is not there or cannot build a program (CXX= chooses another)" g++
    rm -rf "$folder"
}

check_disk() {
    compgen -G ".venv/.dependencies-*" >/dev/null && return # the large part has been paid for
    local free_mb
    free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
    if [ "$free_mb" -lt "$need_mb" ]; then
        lacks "disk space: $free_mb MB free in $(pwd), about $need_mb MB needed (free some, or clone to a larger disk)"
    elif [ "$free_mb" -lt "$cuda_need_mb" ]; then
        echo "preflight: $free_mb MB free; enough for the CPU build of torch, too little for the CUDA build" \
            "(about $cuda_need_mb MB). The README says how to choose." >&2
    fi
}

check_python
check_make
check_compiler
check_disk

[ ${#missing[@]} -eq 0 ] && exit 0
printf 'preflight: this lacks:\n' >&2
printf '  - %s\n' "${missing[@]}" >&2
if [ ${#packages[@]} -gt 0 ]; then
    printf 'On Debian or Ubuntu this line mends it:\n' >&2
    printf '  sudo apt-get install -y %s\n' "$(printf '%s\n' "${packages[@]}" | sort -u | paste -sd ' ')" >&2
fi
exit 1

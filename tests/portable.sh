#!/usr/bin/env bash
# Holds a build to "runs on any x86-64": no flag of this machine in what is installed, and programs
# that end well under qemu-user on a processor without AVX (Westmere, 2010), where the kernels
# choose their SSE4 form. That every form gives the right values is tested by steady_tests, which caps
# the choice (NormOnTargets, and the tests of the kernels).
#
#   tests/portable.sh [BUILD]     (default: build, brought up to date first)
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

build=${1:-build}
steady_install "${steady_packages[@]}" pkg-config "qemu-user|qemu-user-static"
# shellcheck disable=SC2034  # read by steady_build
steady_targets=(own_norm own_op mnist_cnn char_transformer)
[ -n "${1:-}" ] || steady_build build

installed=$(mktemp -d)
trap 'rm -rf "$installed"' EXIT
cmake --install "$build" --prefix "$installed" >/dev/null
if grep -rnE --include='*.cmake' --include='*.pc' --include='*.hpp' \
  -e '-m(arch|tune|cpu|avx|sse|fma)' "$installed"; then
  steady_die "the installed files above carry a flag of one machine"
fi
echo "portable: no machine flag in what is installed"

machine=$(uname -m)
if [ "$machine" != x86_64 ]; then
  echo "portable: skipped under qemu, this is $machine"
  exit 0
fi
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static || true)
if [ -z "$qemu" ]; then
  echo "portable: skipped under qemu, qemu-user is not installed"
  exit 0
fi
# OPENBLAS_CORETYPE names a kernel by force and would run AVX2 instructions.
unset OPENBLAS_CORETYPE
old() { # PROGRAM [OPTION...]: what it says on the old processor
  local name
  name=$(basename "$1")
  "$qemu" -cpu Westmere "$@" >"$installed/$name.txt" 2>&1 ||
    { cat "$installed/$name.txt"; steady_die "$name failed on a processor without AVX"; }
  echo "portable: $name ends well on Westmere"
}
cat >"$installed/which.cpp" <<'TEXT'
#include <cstdio>
#include <steadygrad/version.hpp>
int main() { std::puts(steady::simd_target()); }
TEXT
lib=$(dirname "$(find "$installed" -name 'libsteadygrad.*' | head -n 1)")
# shellcheck disable=SC2046  # flags are words
c++ -std=c++20 "$installed/which.cpp" -o "$installed/which" \
  $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs --static steadygrad)
LD_LIBRARY_PATH=$lib old "$installed/which"
grep -qx SSE4 "$installed/which.txt" || steady_die "the kernels chose $(cat "$installed/which.txt")"
old "$build/bin/own_op"
old "$build/bin/own_norm"
old "$build/bin/mnist_cnn" --data no-such-directory --limit 64 --epochs 1 --norm batch --norm layer \
  --norm rms --norm group
old "$build/bin/char_transformer" --data no-such-directory --layers 1 --dim 32 --heads 2 --context 16 \
  --batch 4 --steps 2 --evaluate-every 2 --sample 5
if grep -h diverged "$installed"/*.txt; then steady_die "a training diverged there"; fi

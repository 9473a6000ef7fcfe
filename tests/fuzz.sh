#!/usr/bin/env bash
# Runs the libFuzzer targets of tests/fuzz under AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tests/fuzz.sh [SECONDS]    every target for SECONDS (20 by default), built in build-fuzz/
#
# Ends with 0 when nothing was found, or when clang, its OpenMP or its libFuzzer is not installed
# (saying so); with 1 and the input that did it otherwise. What was found interesting stays in
# build-fuzz/corpus and is where the next run begins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-20}
case $seconds in
  '' | *[!0-9]*)
    echo "fuzz.sh: SECONDS must be a number; got '$seconds'" >&2
    exit 2
    ;;
esac

clang=
for name in clang++-14 clang++; do
  if command -v "$name" >/dev/null; then
    clang=$name
    break
  fi
done
skip() {
  echo "fuzz: skipped, $1"
  exit 0
}
[ -n "$clang" ] || skip "clang is not installed (apt-get install clang-14 libomp-14-dev)"
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
cat >"$probe/probe.cpp" <<'CPP'
#include <omp.h>
#include <cstddef>
#include <cstdint>
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return omp_in_parallel(); }
CPP
"$clang" -fopenmp -fsanitize=fuzzer,address,undefined "$probe/probe.cpp" -o "$probe/probe" \
  >/dev/null 2>&1 ||
  skip "$clang lacks OpenMP or libFuzzer (apt-get install libomp-14-dev libclang-rt-14-dev)"

generator=()
extra=()
read -r -a extra <<<"${STEADY_CMAKE_ARGS:-}" || true
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
if [ ! -e build-fuzz/CMakeCache.txt ]; then
  cmake -S . -B build-fuzz "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_CXX_COMPILER="$clang" -DSTEADY_FUZZ=ON -DSTEADY_BUILD_TESTS=OFF \
    -DSTEADY_BUILD_BENCH=OFF -DSTEADY_BUILD_EXAMPLES=ON \
    -DCMAKE_CXX_FLAGS="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" \
    "${extra[@]}" >/dev/null
fi
targets=(tests/fuzz/*_fuzz.cpp)
targets=("${targets[@]##*/}")
targets=("${targets[@]%.cpp}")
cmake --build build-fuzz --parallel "$(nproc)" --target "${targets[@]}"

golden=tests/golden/checkpoints
seed() { # what a target begins with
  case $1 in
    safetensors_fuzz)
      local file
      for file in "$golden"/malformed/*.safetensors "$golden"/edge_valid/*.safetensors; do
        [ "$(stat -c %s "$file")" -gt 4096 ] || { printf '\001' && cat "$file"; } >"$2/$(basename "$file")"
      done
      printf '\000{"metadata": {"total_size": 4}, "weight_map": {"a": "1.safetensors"}}' >"$2/index"
      ;;
    idx_fuzz)
      printf '\000\000\010\002\000\000\000\002\000\000\000\003abcdef' >"$2/u8"
      printf '\000\000\015\001\000\000\000\001abcd' >"$2/f32"
      printf '\000\000\010\001\000\000\000\003abc' | gzip -n >"$2/gzip"
      ;;
    norm_spec_fuzz)
      printf 'batch(eps=1e-3, momentum=cumulative, affine=false)' >"$2/batch"
      printf 'layer(over=sample)' >"$2/layer"
      printf 'rms(unit_offset=true)' >"$2/rms"
      ;;
    plan_fuzz)
      cp examples/plans/quick.json "$2/quick"
      printf '{"name":"a","questions":[{"id":"d","title":"t","text":"x","figure":"profile",' >"$2/small"
      printf '"base":{"steps":5},"vary":{"norm":["none","rms"],"depth":[2,4]}}]}' >>"$2/small"
      ;;
  esac
}

failed=0
for target in "${targets[@]}"; do
  corpus=build-fuzz/corpus/$target
  mkdir -p "$corpus"
  seed "$target" "$corpus"
  if "build-fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=8192 -artifact_prefix="build-fuzz/$target-" "$corpus" >"build-fuzz/$target.log" 2>&1; then
    echo "fuzz: $target: $(grep -o 'Done [0-9]* runs' "build-fuzz/$target.log" | tail -1) in" \
      "$seconds s, nothing found"
  else
    echo "fuzz: $target: FAILED"
    tail -40 "build-fuzz/$target.log"
    failed=1
  fi
done
exit "$failed"

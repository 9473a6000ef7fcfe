#!/usr/bin/env bash
# Runs the libFuzzer targets of tests/fuzz under AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tests/fuzz.sh [SECONDS]    every target for SECONDS (20 by default)
#
# clang compiles the targets and the readers they try, with coverage and sanitizers, into build-fuzz/
# and takes everything else from the libraries in build/, which are brought up to date first. (To
# instrument the whole library instead: cmake -DCMAKE_CXX_COMPILER=clang++ -DSTEADY_FUZZ=ON.)
# Ends with 0 when nothing was found, or when clang or its libFuzzer is not installed (saying so);
# with 1 and the input that did it otherwise. What was found interesting stays in build-fuzz/corpus
# and is where the next run begins.
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

seconds=${1:-20}
case $seconds in
  '' | *[!0-9]*) steady_die "SECONDS must be a number; got '$seconds'" ;;
esac

skip() {
  echo "fuzz: skipped, $1"
  exit 0
}
clang=
for name in clang++-14 clang++; do
  if command -v "$name" >/dev/null; then
    clang=$name
    break
  fi
done
[ -n "$clang" ] || skip "clang is not installed (apt-get install clang-14)"
sanitize=("-fsanitize=fuzzer,address,undefined" -fno-sanitize-recover=all)
mkdir -p build-fuzz
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' \
  >build-fuzz/probe.cpp
"$clang" "${sanitize[@]}" build-fuzz/probe.cpp -o build-fuzz/probe >/dev/null 2>&1 ||
  skip "$clang has no libFuzzer (apt-get install libclang-rt-14-dev)"

# shellcheck disable=SC2034  # read by steady_build
steady_targets=(steadygrad steady_examples)
steady_build build >/dev/null
# What a program needs beside the library; g++ compiled it, so its OpenMP.
read -r -a libraries < <(sed -n 's/^Libs.private: *//p' build/steadygrad.pc)
libraries=("${libraries[@]/-fopenmp/-lgomp}")

readers() { # what is instrumented beside a target
  case $1 in
    safetensors_fuzz) echo core/io/safetensors_{header,index,types}.cpp ;;
    idx_fuzz) echo core/data/idx.cpp core/io/gzip.cpp ;;
    norm_spec_fuzz) echo layers/norm/norm_{spec,grammar}.cpp ;;
    plan_fuzz) echo examples/study/plan.cpp ;;
  esac
}

build_target() {
  local sources
  read -r -a sources < <(readers "$1")
  # The instrumented readers come first and stay: an object of the library may hold them once more.
  "$clang" -std=c++20 -O1 -gline-tables-only "${sanitize[@]}" -Wl,-z,muldefs -I. -Ibuild/include \
    "tests/fuzz/$1.cpp" "${sources[@]}" build/examples/libsteady_examples.a build/libsteadygrad.a \
    -lfmt "${libraries[@]}" -o "build-fuzz/$1"
}

targets=(tests/fuzz/*_fuzz.cpp)
targets=("${targets[@]##*/}")
targets=("${targets[@]%.cpp}")

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

fuzz() {
  local target=$1 corpus=build-fuzz/corpus/$1
  build_target "$target" || return 1
  mkdir -p "$corpus"
  seed "$target" "$corpus"
  if "build-fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=8192 -artifact_prefix="build-fuzz/$target-" "$corpus" >"build-fuzz/$target.log" 2>&1; then
    echo "fuzz: $target: $(grep -o 'Done [0-9]* runs' "build-fuzz/$target.log" | tail -1) in" \
      "$seconds s, nothing found"
  else
    echo "fuzz: $target: FAILED"
    tail -40 "build-fuzz/$target.log"
    return 1
  fi
}

rm -f build-fuzz/failed
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  { fuzz "$target" || touch build-fuzz/failed; } &
done
wait
[ ! -e build-fuzz/failed ]

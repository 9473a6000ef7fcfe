#!/usr/bin/env bash
# Builds steadygrad and tests it: the whole suite, or one of the gates of .ci/run.
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

help() {
  cat <<'TEXT'
tests/run.sh [CTEST OPTION...]              builds in build/ and runs every test
tests/run.sh -R RmsNorm                     only the suites whose name matches
tests/run.sh GATE [OPTION...]               one of the gates of .ci/run alone:

  --format                clang-format would change no file
  --clang [DIRECTORY...]  clang reads every source (in these directories) by itself and finds nothing
                          to warn of
  --sanitize [--all] [CTEST OPTION...]
                          the library compiled by clang, warnings as errors, with AddressSanitizer
                          and UndefinedBehaviorSanitizer, under the tests of build/; with --all the
                          tests and examples are compiled in the same way (build-sanitize-all/)
  --threads [FILTER]      the parallel parts under ThreadSanitizer, in build-threads/
  --tidy [--all|FILE...]  clang-tidy on the sources that differ from origin/main (or, where there is
                          no other commit to compare with, from the last one), on all, or on these
  --consumer              a program outside the tree against an installed and moved copy: static,
                          then shared (build-shared/)
  --package [--chroot]    the .deb names what it needs; with --chroot it is installed in a fresh
                          Debian tree and a program is built there
  --portable              no flag of this machine is exported; a program runs on a processor without
                          AVX (qemu-user)
  --examples              the example programs at a small size
  --fuzz [SECONDS]        every fuzz target
  --docs                  the reference builds without a warning
  --cross                 the library compiles for arm64

Missing Debian packages are installed first. STEADY_CMAKE_ARGS holds further arguments of cmake,
such as -DSTEADY_WERROR=ON. A single test: build/bin/steady_tests --gtest_filter='RmsNorm.*'.
TEXT
}

# What the build does without, and the tests should see.
optional_packages=(libprotobuf-dev protobuf-compiler)

# run_tests BUILD [CTEST OPTION...]
run_tests() {
  local build=$1
  shift
  ctest --test-dir "$build" --no-tests=error --output-on-failure --parallel "$(nproc)" "$@"
}

format() {
  steady_install clang-format
  find . \( -path './build*' -o -name '.?*' \) -prune -o -name '*.[ch]pp' -print0 |
    xargs -0 clang-format --dry-run -Werror
  echo "formatting: clean"
}

# What clang needs beside its own package.
clang_packages=("${steady_packages[@]}" "${optional_packages[@]}" clang libclang-rt-dev libomp-dev)
with_clang=(-DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DSTEADY_WERROR=ON)

# compile_each PATTERN FLAG: as build-clang/ would, with this flag more.
compile_each() {
  jq -r --arg pattern "$1" '.[] | select(.file | test($pattern)) | .directory, .command' \
    build-clang/compile_commands.json |
    xargs -d '\n' -n 2 -P "$(nproc)" sh -c 'cd "$2" && eval "$3 $1"' clang "$2"
}

# Each source by itself, nothing but its meaning: that takes a third of the time of compiling.
clang() {
  steady_install "${clang_packages[@]}" jq
  # shellcheck disable=SC2034  # read by steady_build
  steady_targets=(steady_generated)
  STEADY_CMAKE_ARGS='' steady_build build-clang "${with_clang[@]}" -DSTEADY_UNITY=OFF
  compile_each 'cmake_pch\.hxx\.cxx$' ''
  local parts=("$@")
  [ $# -gt 0 ] || parts=(core layers optim tests examples bench)
  compile_each "^$steady_root/($(IFS='|' && echo "${parts[*]}"))/.*\\.cpp$" -fsyntax-only
  echo "clang: no warning"
}

# Left out: what runs programs for long or kills them at many moments, which the plain suite does,
# and what compiles. Tests that count memory or set limits skip themselves here.
sanitize() {
  local build=build-sanitize options=(-DSTEADY_BUILD_EXAMPLES=OFF)
  steady_install "${clang_packages[@]}"
  if [ "${1:-}" = --all ]; then
    shift
    build="build-sanitize-all"
    options=()
  else
    # shellcheck disable=SC2034
    steady_targets=(steady_tests)
    steady_build build
    options+=(-DSTEADY_TEST_OBJECTS="$steady_root/build")
  fi
  export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
  export LSAN_OPTIONS="suppressions=$steady_root/tests/leak_sanitizer.txt ${LSAN_OPTIONS:-}"
  STEADY_CMAKE_ARGS='' steady_build "$build" "${with_clang[@]}" -DSTEADY_SANITIZE=ON \
    -DSTEADY_BUILD_BENCH=OFF "${options[@]}"
  finds heap-buffer-overflow "$build/bin/steady_tests" SumKernel.DISABLED_ReadsBeyondTheEnd
  run_tests "$build" -LE 'slow|installs' "$@"
}

# OpenBLAS, oneDNN and OpenMP are not instrumented: what they do is not seen. Of the kernels, the tests
# that run them on several threads.
threads() {
  local tests=build-threads/bin/steady_tests
  steady_install "${clang_packages[@]}"
  # shellcheck disable=SC2034
  steady_targets=(steady_tests)
  STEADY_CMAKE_ARGS='' steady_build build-threads "${with_clang[@]}" -DSTEADY_SANITIZE=thread \
    -DSTEADY_BUILD_BENCH=OFF -DSTEADY_BUILD_EXAMPLES=OFF
  export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
  finds "data race" "$tests" ParallelOptions.DISABLED_RaceThatTheSanitizerFinds
  "$tests" --gtest_list_tests --gtest_filter="${1:-$threaded}" | grep -c '^  ' >/dev/null ||
    steady_die "no test is called $1"
  "$tests" --gtest_brief=1 --gtest_filter="${1:-$threaded}"
}
threaded='*Thread*:*Parallel*:*Bits*:*Fork*:Tape.*:Storage.*:Distributed*:-Tape.MillionOperations*'

# finds WORDS PROGRAM TEST: the sanitizer sees the fault that is there on purpose.
finds() {
  local said
  if said=$("$2" --gtest_also_run_disabled_tests --gtest_filter="$3" 2>&1) ||
    [[ $said != *"$1"* ]]; then
    steady_die "the sanitizer does not find what $3 does:"$'\n'"$said"
  fi
}

consumer() {
  steady_install "${steady_packages[@]}" "${optional_packages[@]}" pkg-config
  # shellcheck disable=SC2034
  steady_targets=(steadygrad)
  steady_build build
  tests/consumer.sh build
  local archive=()
  if grep -q '^CMAKE_POSITION_INDEPENDENT_CODE:.*=ON' build/CMakeCache.txt; then
    archive=(-DSTEADY_ARCHIVE="$steady_root/build/libsteadygrad.a")
  fi
  steady_build build-shared -DBUILD_SHARED_LIBS=ON -DSTEADY_BUILD_TESTS=OFF \
    -DSTEADY_BUILD_EXAMPLES=OFF -DSTEADY_BUILD_BENCH=OFF "${archive[@]}"
  tests/consumer.sh build-shared
}

examples() {
  steady_install "${steady_packages[@]}"
  steady_build build
  run_tests build -L examples "$@"
}

docs() {
  steady_install "${steady_packages[@]}" doxygen
  # shellcheck disable=SC2034
  steady_targets=(docs)
  steady_build build
  echo "documentation: no warning"
}

gate=${1:-}
case $gate in
  -h | --help) help ;;
  --format | --clang | --sanitize | --threads | --consumer | --examples | --docs)
    shift
    "${gate#--}" "$@"
    ;;
  --tidy | --package | --portable | --fuzz | --cross)
    shift
    exec "tests/${gate#--}.sh" "$@"
    ;;
  *)
    steady_install "${steady_packages[@]}" "${optional_packages[@]}"
    steady_build build
    run_tests build "$@"
    ;;
esac

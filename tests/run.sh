#!/usr/bin/env bash
# Builds steadygrad and runs its whole test suite.
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

build=build
options=()
case ${1:-} in
  -h | --help)
    cat <<'TEXT'
tests/run.sh [CTEST OPTION...]              builds in build/ and runs every test
tests/run.sh --sanitize [CTEST OPTION...]   the same in build-sanitize/, under AddressSanitizer and
                                            UndefinedBehaviorSanitizer
tests/run.sh -R RmsNorm                     only the tests whose name matches

Missing Debian packages are installed first. STEADY_CMAKE_ARGS holds further arguments of cmake,
such as -DSTEADY_WERROR=ON.
TEXT
    exit 0
    ;;
  --sanitize)
    shift
    build="build-sanitize"
    options=(-DSTEADY_SANITIZE=ON -DSTEADY_BUILD_BENCH=OFF)
    export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
    ;;
esac

steady_install "${steady_packages[@]}"
steady_build "$build" "${options[@]}"
exec ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" "$@"

# shellcheck shell=bash
# Sourced by examples/run.sh, tests/run.sh and .ci/run: installs what the build needs, configures
# and builds. Every function is a fast no-op when its work is already done.

steady_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Debian packages of the build; "a|b" means that either will do and the first is installed.
# shellcheck disable=SC2034  # read by the scripts that source this file
steady_packages=(
  g++ cmake "ninja-build|make" libfmt-dev libhwy-dev libdnnl-dev
  "libopenblas-dev|libopenblas-openmp-dev|libopenblas-pthread-dev|libopenblas-serial-dev"
  "libhdf5-dev|libhdf5-openmpi-dev|libhdf5-mpich-dev" zlib1g-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  "gnuplot-nox|gnuplot-qt|gnuplot-x11"
)

steady_die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# Prints the packages out of its arguments that are not installed.
steady_missing_packages() {
  local entry name found installed names
  mapfile -t names < <(printf '%s\n' "${@//|/$'\n'}")
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null |
    sed -n 's/^installed //p') || true
  for entry in "$@"; do
    found=
    for name in ${entry//|/ }; do
      if [[ $'\n'$installed$'\n' == *$'\n'"$name"$'\n'* ]]; then found=1; fi
    done
    [ -n "$found" ] || echo "${entry%%|*}"
  done
}

# steady_install PACKAGE...: brings the missing ones through apt, or ends with one line naming them.
steady_install() {
  local missing=() as_root=(env)
  command -v dpkg-query >/dev/null || return 0 # no Debian: the configure step names what it misses
  mapfile -t missing < <(steady_missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    # A terminal can be asked for a password, a script cannot.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo env)
    else
      steady_die "missing packages, and no right to install them: apt-get install ${missing[*]}"
    fi
  fi
  as_root+=(DEBIAN_FRONTEND=noninteractive)
  echo "installing with apt-get: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq ||
    echo "apt-get update failed; going on with the package lists at hand" >&2
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 \
    "${missing[@]}" </dev/null >/dev/null ||
    steady_die "apt-get could not install them; by hand: apt-get install ${missing[*]}"
}

# steady_build DIRECTORY [CMAKE ARGUMENT...]: configures once (again when STEADY_CMAKE_ARGS holds
# extra arguments, from nothing when the arguments are others than last time) and builds in Release:
# the targets in steady_targets, or everything.
steady_build() {
  local build=$steady_root/$1 generator=() extra=()
  shift
  read -r -d '' -a extra <<<"${STEADY_CMAKE_ARGS:-}" || true
  if [ $# -gt 0 ] && [ "$*" != "$(cat "$build/configured" 2>/dev/null)" ]; then
    rm -rf "$build"/{CMakeCache.txt,CMakeFiles,build.ninja,Makefile}
    mkdir -p "$build"
    echo "$*" >"$build/configured"
  fi
  if [ ! -e "$build/build.ninja" ] && [ ! -e "$build/Makefile" ] || [ "${#extra[@]}" -gt 0 ]; then
    if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then
      generator=(-G Ninja)
    fi
    cmake -S "$steady_root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "$@" \
      "${extra[@]}"
  fi
  cmake --build "$build" --parallel "$(nproc)" \
    ${steady_targets:+--target "${steady_targets[@]}"}
}

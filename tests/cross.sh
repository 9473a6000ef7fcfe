#!/usr/bin/env bash
# Compiles the library and a few programs for arm64 with Debian's cross compiler, against arm64
# packages that are unpacked below build-arm64/ (this machine's own packages stay as they are), and
# runs the programs under qemu-user.
#
#   tests/cross.sh
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

command -v apt-get >/dev/null || { echo "cross: skipped, no apt-get here"; exit 0; }
steady_install "${steady_packages[@]}" g++-aarch64-linux-gnu "qemu-user|qemu-user-static"

# A package database of its own, for the other architecture.
apt=$steady_root/build-arm64/apt
sysroot=$steady_root/build-arm64/sysroot
if [ ! -e "$sysroot/complete" ]; then
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,sources} "$sysroot"
  : >"$apt/status"
  cp /etc/apt/sources.list.d/debian.sources "$apt/sources/" 2>/dev/null || true
  cat >"$apt/conf" <<TEXT
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourceparts "$apt/sources";
TEXT
  APT_CONFIG=$apt/conf apt-get update -qq
  APT_CONFIG=$apt/conf apt-get install -y -qq --no-install-recommends --download-only \
    libfmt-dev libhwy-dev libdnnl-dev libopenblas-dev libhdf5-dev zlib1g-dev nlohmann-json3-dev \
    libcli11-dev >/dev/null
  for deb in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$sysroot"; done
  # What the packages' own scripts would link.
  libraries=$sysroot/usr/lib/aarch64-linux-gnu
  for variant in "$libraries"/openblas-*; do
    ln -sf "$(basename "$variant")"/libopenblas.so "$libraries/libopenblas.so"
    ln -sf "$(basename "$variant")"/libopenblas.so.0 "$libraries/libopenblas.so.0"
    ln -sf "$(basename "$variant")"/libblas.so.3 "$libraries/libblas.so.3"
    ln -sf "$(basename "$variant")"/liblapack.so.3 "$libraries/liblapack.so.3"
    cp "$sysroot"/usr/include/aarch64-linux-gnu/"$(basename "$variant")"/*.h "$sysroot/usr/include/"
    break
  done
  touch "$sysroot/complete"
fi

cat >build-arm64/toolchain.cmake <<TEXT
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT $sysroot)
set(CMAKE_FIND_ROOT_PATH $sysroot)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
TEXT
programs=(own_op own_norm own_layer)
# shellcheck disable=SC2034  # read by steady_build
steady_targets=(steadygrad "${programs[@]}")
steady_build build-arm64/tree -DCMAKE_TOOLCHAIN_FILE="$steady_root/build-arm64/toolchain.cmake" \
  -DSTEADY_BUILD_TESTS=OFF -DSTEADY_BUILD_BENCH=OFF -DSTEADY_EVENT_FILES=OFF -DSTEADY_MPI=OFF \
  -DSTEADY_UNITY=ON
echo "cross: the library and ${programs[*]} compile and link for arm64"
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
[ -n "$qemu" ] || { echo "cross: not run, qemu-user is not installed"; exit 0; }
for program in "${programs[@]}"; do
  "$qemu" -L "$sysroot" "build-arm64/tree/bin/$program" >"build-arm64/$program.txt" 2>&1 ||
    { cat "build-arm64/$program.txt"; steady_die "$program failed on arm64"; }
  echo "cross: $program ends well on arm64"
done

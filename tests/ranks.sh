#!/usr/bin/env bash
# Trains on several ranks from outside, as a user starts them.
#   tests/ranks.sh BIN_DIRECTORY suite RANKS       the tests of the library, in as many processes
#   tests/ranks.sh BIN_DIRECTORY programs          the programs that train
#   tests/ranks.sh BIN_DIRECTORY mistakes          launches that cannot work end in one clear line
#   tests/ranks.sh BIN_DIRECTORY failures          a rank that throws or leaves ends the run
#   tests/ranks.sh BIN_DIRECTORY kill [TRIES]      a rank is killed in the middle of a step
#   tests/ranks.sh BIN_DIRECTORY namespaces        two ranks in two network namespaces
# Exit code 77: cannot be tried here, and why. What should end by itself is taken for hanging after
# STEADY_RANKS_SECONDS, 30 on a machine that does nothing else; on a busy one starting takes longer.
set -euo pipefail
limit=${STEADY_RANKS_SECONDS:-300}
bin=$(cd "$1" && pwd)
what=$2

skip() {
  echo "skipped: $*"
  exit 77
}
die() {
  echo "FAILED: $*" >&2
  [ ! -e "${log:-}" ] || sed 's/^/  | /' "$log" >&2
  exit 1
}

work=$(mktemp -d)
log=$work/log
trap 'rm -rf "$work"' EXIT
if [[ $(ldd "$bin/mnist_cnn") != *libmpi* ]]; then
  [ "$what" = mistakes ] || skip "built without MPI"
  OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$bin/mnist_cnn" >"$log" 2>&1 &&
    die "trained beside the other ranks"
  [ "$(wc -l <"$log")" = 1 ] || die "not one line"
  grep -q 'started as rank 1 of 2, but steadygrad was built without MPI' "$log" || die "no reason"
  exit 0
fi
command -v mpirun >/dev/null || skip "there is no mpirun (apt-get install openmpi-bin)"
[[ $(mpirun --version 2>&1) == *'Open MPI'* ]] || skip "mpirun is not that of Open MPI"

export OMP_NUM_THREADS=1 STEADY_MPI_TIMEOUT=120
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS} # MPI keeps some memory to its end
run=(mpirun --oversubscribe --bind-to none)
[ "$(id -u)" -ne 0 ] || run+=(--allow-run-as-root)

# A Transformer of a few milliseconds per step, and a CNN with BatchNorm.
text=(--steps 150 --layers 1 --dim 32 --heads 2 --context 16 --batch 5 --sample 0 --warmup 5
  --evaluate-every 50 --progress off --data "$work/none" --dropout 0)
digits=(--limit 200 --epochs 2 --batch 25 --warmup 5 --progress off --data "$work/none")

# The numbers of a run: what --json wrote, without the speed.
numbers() { grep -v 'per_second' "$1"; }

# Whether all numbers of two files with equal lines are near: to a relative tolerance.
near() {
  paste -d' ' <(numbers "$1") <(numbers "$2") | tr -d '",' | awk -v tolerance="$3" '
    NF == 2 && $1 + 0 != 0 {
      difference = $1 > $2 ? $1 - $2 : $2 - $1
      ++seen
      if (difference > tolerance * ($1 > 0 ? $1 : -$1)) { print; far = 1 }
    }
    END { exit far || seen < 10 }'
}

suite() {
  "${run[@]}" -n "$1" "$bin/steady_tests" --gtest_brief=1 \
    --gtest_filter='Distributed*:DataParallel*:SyncBatchNorm*' >"$log" 2>&1 || die "on $1 ranks"
  grep -c 'PASSED' "$log" | grep -qx "$1" || die "not all of $1 ranks ran"
}


# mnist_cnn and char_transformer: the same bits every time, near one process, resumed by others.
programs() {
  local ranks
  "$bin/char_transformer" "${text[@]}" --json "$work/one.json" >"$log" 2>&1 || die "one process"
  for ranks in 2 3; do
    for again in a b; do
      "${run[@]}" -n "$ranks" "$bin/mnist_cnn" "${digits[@]}" --json "$work/$again.json" \
        >"$log" 2>&1 || die "mnist_cnn on $ranks ranks"
      [ "$(grep -c 'epoch 1: test accuracy' "$log")" = 1 ] || die "rank 0 alone prints"
    done
    cmp <(numbers "$work/a.json") <(numbers "$work/b.json") || die "$ranks ranks: other bits"
    "${run[@]}" -n "$ranks" "$bin/char_transformer" "${text[@]}" --json "$work/$ranks.json" \
      >"$log" 2>&1 || die "char_transformer on $ranks ranks"
    near "$work/one.json" "$work/$ranks.json" 1e-3 || die "$ranks ranks: not what one process learns"
  done
  # What three ranks saved, two go on from, and three to the same bits.
  "${run[@]}" -n 3 "$bin/char_transformer" "${text[@]}" --save "$work/of3" --save-every 50 \
    >"$log" 2>&1 || die "char_transformer --save on 3 ranks"
  rm "$work"/of3/step-*150.h5
  for ranks in 2 3; do
    cp -r "$work/of3" "$work/from"
    "${run[@]}" -n "$ranks" "$bin/char_transformer" "${text[@]}" --resume "$work/from" \
      --json "$work/resumed.json" >"$log" 2>&1 || die "resume on $ranks ranks"
    grep -q "after step 100" "$log" || die "not resumed"
    near "$work/3.json" "$work/resumed.json" 1e-3 || die "resumed on $ranks ranks"
    rm -r "$work/from"
  done
  cmp <(numbers "$work/3.json") <(numbers "$work/resumed.json") || die "resumed: other bits"
}

mistakes() {
  "${run[@]}" -n 1 "$bin/mnist_cnn" "${digits[@]}" : -n 1 "$bin/mnist_cnn" "${digits[@]}" --lr 0.5 \
    >"$log" 2>&1 && die "two command lines were accepted"
  [ "$(grep -c 'mnist_cnn: ' "$log")" = 1 ] || die "not one line"
  grep -q "^mnist_cnn: the command line of rank 1 is not that of rank 0: '--lr' against nothing" \
    "$log" || die "no reason"
  "${run[@]}" -n 3 "$bin/mnist_cnn" --epochs none >"$log" 2>&1 && die "a bad option was accepted"
  [ "$(grep -c "mnist_cnn: --epochs: 'none' is not a whole number" "$log")" = 1 ] ||
    die "a bad option is one line"
  "${run[@]}" -n 2 "$bin/mnist_cnn" "${digits[@]}" --resume "$work/nothing" >"$log" 2>&1 &&
    die "resumed from nothing"
  [ "$(grep -c 'there is no checkpoint in' "$log")" = 1 ] || die "a missing checkpoint is one line"
  SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$bin/mnist_cnn" "${digits[@]}" >"$log" 2>&1 &&
    die "trained beside the other tasks of srun"
  grep -q '^mnist_cnn: .*Slurm started 2 tasks that cannot find each other' "$log" ||
    die "srun without PMI"
}

# The process of a rank of the run whose mpirun is $1.
rank_process() {
  local p
  for p in $(pgrep -P "$1"); do
    if grep -qzx "OMPI_COMM_WORLD_RANK=$2" "/proc/$p/environ" 2>/dev/null; then echo "$p"; fi
  done
}

newest() { find "$1" -name 'step-*.h5' 2>/dev/null | sort | tail -n 1; }

# Waits for the run $1, so long as it may take.
ends_in_time() {
  local since=$SECONDS
  while kill -0 "$1" 2>/dev/null; do
    [ $((SECONDS - since)) -lt "$limit" ] || return 1
    sleep 0.02
  done
}

# A rank is killed in the middle of a step, again and again; what resumes ends as if nothing was.
kill_ranks() {
  local tries=$1 try victim pid longest=0 begun took file
  "${run[@]}" -n 3 "$bin/char_transformer" "${text[@]}" --json "$work/whole.json" >"$log" 2>&1 ||
    die "the run that nothing disturbs"
  for ((try = 1; try <= tries; ++try)); do
    rm -rf "$work/save"
    victim=$((RANDOM % 3))
    "${run[@]}" -n 3 "$bin/char_transformer" "${text[@]}" --save "$work/save" --save-every 10 \
      >"$log" 2>&1 &
    pid=$!
    file=$(printf 'step-%012d.h5' $((RANDOM % 10 * 10 + 10)))
    until [[ "$(newest "$work/save")" > "$work/save/$file" ]]; do
      kill -0 "$pid" 2>/dev/null || break
      sleep "0.00$((RANDOM % 9 + 1))" # anywhere in a step
    done
    kill -KILL "$(rank_process "$pid" "$victim")" 2>/dev/null || true
    begun=$(date +%s%N)
    ends_in_time "$pid" || { kill -KILL "$pid"; die "try $try: still there $limit s later"; }
    took=$((($(date +%s%N) - begun) / 1000000))
    [ "$took" -le "$longest" ] || longest=$took
    if wait "$pid"; then
      ((try--))
      continue # it was over before
    fi
    grep -q "process rank $victim with PID .* exited on signal 9" "$log" ||
      die "try $try: no word of rank $victim"
    "${run[@]}" -n 3 "$bin/char_transformer" "${text[@]}" --resume "$work/save" \
      --json "$work/resumed.json" >"$log" 2>&1 || die "try $try: cannot resume"
    grep -q '^resumed from' "$log" || die "try $try: not resumed"
    cmp <(numbers "$work/whole.json") <(numbers "$work/resumed.json") ||
      die "try $try: another result than without the kill"
  done
  echo "$tries of $tries: ended at most $longest ms after the kill, resumed to the same bits"
}

# A rank that throws where the others do not ends the run, with its reason.
failures() {
  local since=$SECONDS
  mkdir "$work/here" "$work/there"
  printf 'Some text to learn, %s.\n' {1..200} >"$work/here/text.txt"
  "${run[@]}" -n 1 -wdir "$work/here" "$bin/char_transformer" "${text[@]}" --text text.txt : \
    -n 1 -wdir "$work/there" "$bin/char_transformer" "${text[@]}" --text text.txt >"$log" 2>&1 &&
    die "trained without a text"
  [ $((SECONDS - since)) -lt "$limit" ] || die "took $((SECONDS - since)) s"
  [ "$(grep -c "^rank 1 of 2: char_transformer: .*text.txt" "$log")" = 1 ] ||
    die "which rank, and why?"
}

# Two hosts as two network namespaces, joined by a cable; ip stands for ssh.
namespaces() {
  here=steady$$a
  there=steady$$b
  command -v ip >/dev/null || skip "there is no ip (apt-get install iproute2)"
  ip netns add "$here" 2>"$work/why" || skip "no network namespaces here: $(cat "$work/why")"
  trap 'ip netns del "$here" || true; ip netns del "$there" 2>/dev/null || true; rm -rf "$work"' EXIT
  ip netns add "$there"
  ip link add "sa$$" netns "$here" type veth peer name "sb$$" netns "$there" 2>"$work/why" ||
    skip "no pairs of virtual links here: $(cat "$work/why")"
  ip -n "$here" addr add 10.77.0.1/24 dev "sa$$"
  ip -n "$there" addr add 10.77.0.2/24 dev "sb$$"
  local name
  for name in "$here sa$$" "$there sb$$"; do
    ip -n "${name% *}" link set lo up
    ip -n "${name% *}" link set "${name#* }" up
  done
  cat >"$work/agent" <<AGENT
#!/bin/sh
shift # the host
exec ip netns exec $there sh -c "readlink /proc/self/ns/net >$work/other; \$*"
AGENT
  chmod +x "$work/agent"
  local mca=(--host "10.77.0.1:1,10.77.0.2:1" --mca plm_rsh_agent "$work/agent" --mca btl "tcp,self"
    --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24)
  ip netns exec "$here" "${run[@]}" "${mca[@]}" -n 2 "$bin/char_transformer" "${text[@]}" \
    --json "$work/two.json" >"$log" 2>&1 || die "two namespaces"
  [ "$(cat "$work/other")" != "$(readlink /proc/self/ns/net)" ] || die "it was one namespace"
  "${run[@]}" -n 2 "$bin/char_transformer" "${text[@]}" --json "$work/one.json" >"$log" 2>&1
  cmp <(numbers "$work/one.json") <(numbers "$work/two.json") || die "other bits than in one namespace"
  echo "two ranks in two network namespaces: the bits of two ranks in one"
}

case $what in
  suite) suite "$3" ;;
  kill) kill_ranks "${3:-20}" ;;
  programs | mistakes | failures | namespaces) "$what" ;;
  *) die "what is '$what'?" ;;
esac

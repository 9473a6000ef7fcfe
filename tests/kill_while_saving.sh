#!/usr/bin/env bash
# Kills a program at N random moments while it saves checkpoints, and loads what each left.
set -euo pipefail
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
  cat <<'TEXT'
tests/kill_while_saving.sh [N] [BUILD]   N kills (200), with the tests in BUILD (build); then 5 N
                                         checkpoints with flipped bits are read, each by a process
                                         of its own
TEXT
  exit 0
fi
kills=${1:-200}
tests=${2:-build}/bin/steady_tests
if ! [[ $kills =~ ^[1-9][0-9]*$ ]] || [ ! -x "$tests" ]; then
  echo "kill_while_saving.sh: needs a number of kills and built tests; got '$kills' and '$tests'" >&2
  exit 2
fi
STEADY_KILLS=$kills STEADY_BIT_FLIPS=$((5 * kills)) \
  exec "$tests" --gtest_filter='CheckpointCases.Killed*:CheckpointCases.Flipped*'

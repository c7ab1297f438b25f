# shellcheck shell=bash
# Waiting with a deadline, for bats files: what does not come in time fails the test and is named. A test as a whole has
# BATS_TEST_TIMEOUT (scripts/test), after which bats prints the line that it was at.

# bats 1.13 keeps the process id of a test's countdown in a local variable, which is gone where a failed test ends: the countdown then keeps
# bats from ending until the limit is over. As a global one it is found and ended.
# shellcheck disable=SC2034 # bats reads it
[[ -z ${BATS_killer_pid-} ]] || declare -g BATS_killer_pid=$BATS_killer_pid

# wait_until WHAT COMMAND…: wait until the command succeeds, a minute at most ($patience_s).
wait_until() {
  local what=$1 patience=${patience_s:-60}
  local deadline=$((SECONDS + patience))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || fail "waited $patience s for $what"
    sleep 0.05
  done
}

# wait_for_end WHAT PID: wait until the background process ends, four minutes at most ($patience_s); its exit status.
wait_for_end() {
  local patience=${patience_s:-240}
  timeout "$patience" tail -s 0.05 --pid="$2" -f /dev/null || {
    # The caller may take the status for that of the process: the test ends here.
    fail "waited $patience s for $1 to end: $(tr '\0' ' ' <"/proc/$2/cmdline")" || kill "$2"
    exit 1
  }
  wait "$2"
}

#!/usr/bin/env bats
# `just knee`: a short real search on the local target, its resumption, and the sweep that is placed at what it found.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  limit_s=240
}

# bats test_tags=measures
@test "a real search is interrupted, resumed, printed again and exported to the next bench" {
  python -m lab knee ingress-nginx --generator k6 --duration 1 --precision 50% --start 500 >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" 3>&- &
  search=$!
  until_samples 1
  kill -INT "$search"
  status=0
  wait_for_end "the search" "$search" || status=$?
  assert_equal "$status" 1
  run_id=$(basename "$LAB_RUNS"/*-ingress-nginx-knee-*)
  run cat "$BATS_TEST_TMPDIR/err"
  assert_output --partial "just knee --resume $run_id"

  lab knee --resume "$run_id" --json
  [[ $status == 0 || $status == 1 ]] || fail "$status: $stderr"
  if [[ $(jq .complete <<<"$output") == false ]]; then
    assert_failure 1
    assert_output --partial "not resolved"
    skip "this machine is too busy for a knee: $output"
  fi
  assert_success
  assert_equal "$output" "$(cat "$LAB_RUNS/$run_id/knee.json")"
  rm "$LAB_RUNS/$run_id/knee.json"
  lab table "$run_id"
  assert_success
  assert_output --partial "--sweep at-knee --knee $run_id"
  lab knee --resume "$run_id" --json
  assert_success
  [[ -s $LAB_RUNS/$run_id/knee.json ]] || fail "no knee.json again"

  lab bench ingress-nginx --sweep at-knee --knee "$run_id" --plan
  assert_success
  [[ $stderr == *"of ingress-nginx, found by $run_id"* ]] || fail "$stderr"
}

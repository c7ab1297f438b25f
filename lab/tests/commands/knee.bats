#!/usr/bin/env bats
# `just knee` and sweeps placed at it: a short real search on the local target, its resumption, and every kind of bad input.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  limit_s=240
}

# told EXPRESSION: the value of a Python expression over `found`, the JSON in $output.
told() {
  python -c 'import json, sys; found = json.loads(sys.argv[1]); print(eval(sys.argv[2]))' "$output" "$1"
}

# bats test_tags=slow
@test "knee --plan says what is tried, what passes and how long it takes, and leaves nothing" {
  lab knee ingress-nginx --plan --generator k6 --duration 3 --p99 20ms --start 200 --precision 10% --json
  assert_success
  assert_equal "$(told 'found["runs"][0]["knee"]["p99_s"], found["runs"][0]["loads"][0]["generator"]["name"]')" "(0.02, 'k6')"
  [[ $stderr == *"k6, 100 connections, 200 req/s, 3 s, 1kB.bin"* ]] || fail "$stderr"
  [[ $stderr == *"p99 at most 20.0 ms"*"below 80 % of its CPU"* ]] || fail "$stderr"
  [[ $stderr == *"x2 from 200 req/s"*"within 10 %"* ]] || fail "$stderr"
  [[ $stderr =~ duration\ +about\ [0-9]+ ]] || fail "$stderr"
  lab knee gzip-9 --plan --generator k6 --page 64kB.txt --accept-encoding gzip --close
  assert_success
  [[ $stderr == *"64kB.txt"*"new connection per request"*"accepts gzip"* ]] || fail "$stderr"
  nothing_recorded
}

# bats test_tags=slow
@test "bench --sweep at-knee takes a rate, and is listed without one" {
  lab bench keepalive --sweep at-knee --plan --knee 2000
  assert_success
  [[ $stderr == *"2,000 req/s, as named"* && $stderr == *knee-50*"1,000 req/s"* && $stderr == *knee-80*"1,600 req/s"* ]] || fail "$stderr"
  nothing_recorded
  lab list
  assert_success
  assert_output --partial at-knee
}

# bats test_tags=measures
@test "a real search is interrupted, resumed, printed again, exported to the next bench, and refused as a bench" {
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

  lab bench --resume "$run_id"
  assert_failure 2
  [[ $stderr == *"just knee --resume $run_id"* ]] || fail "$stderr"

  lab knee --resume "$run_id" --json
  [[ $status == 0 || $status == 1 ]] || fail "$status: $stderr"
  if [[ $(told 'found["complete"]') == False ]]; then
    assert_failure 1
    [[ $(told 'found["knees"][0]["why"]') == *"not resolved"* ]] || fail "$output"
    skip "this machine is too busy for a knee: $(told 'found["knees"][0]["why"]')"
  fi
  assert_success
  rate=$(told 'round(found["knees"][0]["rate_rps"])')
  [[ $(told 'found["knees"][0]["limited_by"] in ("proxy", "generator", "backend", "p99", "unknown")') == True ]] || fail "$output"
  [[ $(told '(lambda knee: knee["rate_rps"] < knee["fails_rps"] <= 1.5 * knee["rate_rps"])(found["knees"][0])') == True ]] || fail "$output"
  [[ -s $LAB_RUNS/$run_id/knee.json ]] || fail "no knee.json"
  assert_equal "$output" "$(cat "$LAB_RUNS/$run_id/knee.json")"

  rm "$LAB_RUNS/$run_id/knee.json"
  lab table "$run_id"
  assert_success
  assert_output --partial "limited by"
  assert_output --partial "--sweep at-knee --knee $run_id"
  lab table "$run_id" --json
  assert_equal "$(told 'round(found["knees"][0]["rate_rps"])')" "$rate"
  lab knee --resume "$run_id" --json
  assert_success
  [[ -s $LAB_RUNS/$run_id/knee.json ]] || fail "no knee.json again"

  lab bench ingress-nginx --sweep at-knee --plan
  assert_success
  [[ $stderr == *"of ingress-nginx, found by $run_id"* ]] || fail "$stderr"
}

#!/usr/bin/env bats
# `just capacity`: the answer from a committed run, Markdown and JSON.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  COLUMNS=120
}

capacity() {
  lab capacity "$@"
}

@test "the answer is a number of proxies, what to apply, and what was taken for granted" {
  capacity --rate 1M --run data/reference/quick-keepalive
  assert_success
  assert_line --regexp '^run [0-9]+ proxies of 4 cores: [0-9]+ \[[0-9]+, [0-9]+\] serve 1,000,000 req/s at 70 % CPU'
  assert_line --regexp '^    replicaCount: [0-9]+$'
  assert_line '      worker-processes: "4"'
  assert_line --partial 'µs of proxy CPU per request ['
  assert_line --partial 'directive-equivalent, not the controller'
  assert_line --partial 'LINEAR IN CORES'
}

@test "without a run of yours a committed one answers" {
  capacity --rate 250k
  assert_success
  assert_line --partial ' serve 250,000 req/s '
  assert_line '      worker-processes: "4"'
  refute_output --partial 'oc -n openshift'
}

@test "twice the rate needs twice the cores" {
  capacity --rate 1M --json --run data/reference/quick-keepalive
  assert_success
  one=$output
  capacity --rate 2M --json --run data/reference/quick-keepalive
  assert_success
  run python -c 'import json, sys; a, b = (json.loads(t)["cores"] for t in sys.argv[1:]); print(round(b / a, 9))' "$one" "$output"
  assert_output 2.0
}

@test "Markdown is a table" {
  capacity --rate 1M --markdown --run data/reference/quick-keepalive
  assert_success
  assert_line --regexp '^\| 4 \| [0-9,]+ \|'
}

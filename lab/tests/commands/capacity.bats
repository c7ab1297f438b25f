#!/usr/bin/env bats
# `just capacity`: the answer from a committed run, named or chosen.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  COLUMNS=120
}

@test "the answer is a number of proxies, what to apply, and what was taken for granted" {
  lab capacity --rate 1M --run data/reference/quick-keepalive
  assert_success
  assert_line --regexp '^run [0-9]+ proxies of 4 cores: [0-9]+ \[[0-9]+, [0-9]+\] serve 1,000,000 req/s at 70 % CPU'
  assert_line --regexp '^    replicaCount: [0-9]+$'
  assert_line '      worker-processes: "4"'
  assert_line --partial 'µs of proxy CPU per request ['
  assert_line --partial 'directive-equivalent, not the controller'
  assert_line --partial 'LINEAR IN CORES'
}

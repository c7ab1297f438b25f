#!/usr/bin/env bats
# `just compare`: a committed run by itself.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  COLUMNS=100
  reference=$PWD/data/reference/quick-keepalive
}

@test "a run by itself: every metric of the variant against its baseline, and what to do" {
  lab compare "$reference"
  assert_success
  assert_line --regexp '^ceiling  64 connections, closed loop'
  assert_line --regexp '^  keepalive against ingress-nginx$'
  assert_line --regexp '^    CPU/req +µs +[0-9.]+ \[[0-9., ]+\] +[0-9.]+ \[[0-9., ]+\] +~ \[.*\] % +[0-9.]+ +6$'
  assert_line --partial "generator-limited; only CPU per request carries the effect"
  assert_line --regexp "^keepalive: no difference resolved in .*: don't bother unless [0-9.]+ % in CPU per request"
  assert_equal "$stderr" ''
}

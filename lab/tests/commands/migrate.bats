#!/usr/bin/env bats
# `just migrate`: what the successors do with a user's settings.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  mine=$BATS_TEST_TMPDIR/mine.yaml
  printf 'kind: ConfigMap\nmetadata: {name: mine}\ndata:\n  keep-alive: "300"\n  client-max-body-size: 10m\n' >"$mine"
}

@test "a plan names what is unknown, and writes manifests to take away, which build by themselves" {
  out=$BATS_TEST_TMPDIR/out
  lab migrate --configmap "$mine" --to envoy --plan --out "$out"
  assert_success
  assert_line --partial "client-max-body-size: ingress-nginx 1.15.1 has no such key"
  run bash -c "cp -r '$out' '$BATS_TEST_TMPDIR/moved' && kubectl kustomize '$BATS_TEST_TMPDIR/moved/overlays/envoy-yours'"
  assert_success
  assert_line --partial "cluster.circuit_breakers.thresholds.0.max_connections"
  refused "is there already, and not empty" migrate --configmap "$mine" --to envoy --plan --out "$out"
}

# bats test_tags=slow
@test "ingress-nginx with the file is measured against a successor in one run, which ends in its traps" {
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  limit_s=300
  lab migrate --configmap "$mine" --to envoy --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1
  assert_regex "$status" '^[01]$' # a busy machine spoils samples
  assert_regex "$output" 'ingress-nginx\+keep-alive-300'
  assert_regex "$output" 'envoy-yours'
  assert_regex "$output" 'traps, and what to set'
  run bash -c "grep -l 'circuit_breakers' '$LAB_RUNS'/*/report.html"
  assert_success
}

#!/usr/bin/env bats
# `just list` and `just show`: what there is, and what a variant changes.

bats_require_minimum_version 1.11.0

setup() {
  bats_load_library bats-support
  bats_load_library bats-assert
  cd "$BATS_TEST_DIRNAME/../../.." || return
  export COLUMNS=160
}

# bats test_tags=slow
@test "list names every variant, knob, sweep and study there is a file for" {
  run --separate-stderr just list
  assert_success
  local path name
  for path in manifests/overlays/*/ manifests/components/*/ lab/sweeps/*.toml lab/studies/*.toml okd-quick reload-endpoints-quick; do
    name=$(basename "$path" .toml)
    grep -Eq "^ *$name( |$)" <<<"$output" || fail "list does not name $name"
  done
}

@test "show tells what a variant changes of its baseline" {
  run just show keepalive
  assert_success
  assert_line --regexp "^\\+ +keep-alive-requests: '10000'"
}

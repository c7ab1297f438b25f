#!/usr/bin/env bats
# `just selfbench`: a whole run for real, as short as it can be.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  # shellcheck disable=SC2034 # verbs.bash reads it
  limit_s=300
}

# bats test_tags=measures
@test "the lab's own time is a share of a run's" {
  lab selfbench overhead --sweep smoke
  assert_success
  assert_line --regexp "^a whole run of [0-9]+ samples"
  assert_line --regexp "^  the lab's own time: [0-9.]+ m?s per sample, [0-9.]+% of measuring$"
  [[ ! -e $LAB_RUNS ]] || fail "it left runs: $(ls "$LAB_RUNS")"
}

#!/usr/bin/env bats
# `just selfbench`: a whole run for real, as short as it can be, and what it says where nothing can be measured.

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

# bats test_tags=measures
@test "a target without nginx fails with exit 1 and what the run said" {
  mkdir "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/bash\necho "nginx version: nginx/1.0.0" >&2\n' >"$BATS_TEST_TMPDIR/bin/nginx"
  chmod +x "$BATS_TEST_TMPDIR/bin/nginx"
  PATH="$BATS_TEST_TMPDIR/bin:$PATH" lab selfbench
  assert_failure 1
  [[ $stderr == *"selfbench: lab bench: "*"1.0.0 is too old"* ]] || fail "$stderr"
}

#!/usr/bin/env bats
# `just ledger`: the whole table; one study's is in test_answers.py.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  COLUMNS=120
}

# bats test_tags=long
@test "every claim is judged, here and by its own data" {
  lab ledger
  assert_success
  assert_line --regexp '^[0-9]{3} claims: '
  assert_line --regexp '^ND-11 '
  refute_output --partial 'not judged yet'
  assert_line --regexp "^by the publications' own data: [0-9]+ borne out, "
  assert_line --partial 'its own data: not borne out: '
}

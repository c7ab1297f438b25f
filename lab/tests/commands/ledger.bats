#!/usr/bin/env bats
# `just ledger`: the table, one study's, Markdown and JSON.

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

# bats test_tags=slow
@test "one study's claims alone, with both rules of each and of each kind, and as JSON" {
  lab ledger nds --rules
  assert_success
  assert_line --regexp '^12 claims: '
  assert_line --partial 'rule: reproduced if'
  assert_line --partial 'rule of its own data: borne out if'
  assert_line --regexp '^how a claim of kind .figure. is judged: here, '
  refute_output --partial 'OK-30'
  lab ledger nds --json
  assert_success
  run jq -r '.claims | length, all(.answer != null and .own.answer != null)' <<<"$output"
  assert_output $'12\ntrue'
}

#!/usr/bin/env bats
# `just selfbench`: both parts for real, as short as they can be, and what it says where one cannot be measured.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  # shellcheck disable=SC2034 # verbs.bash reads it
  limit_s=300
}

# bats test_tags=measures
@test "the lab's own time is a share of a run's, and a log is reduced to the same numbers as by hand" {
  lab selfbench --duration 1 --rows 1e3
  assert_success
  assert_line "k6's log, 1,000 rows, 6 pairs against plain polars"
  assert_line --regexp "^  rows per second: [0-9,]+ against [0-9,]+: [0-9.]+ \\[[0-9.]+, [0-9.]+\\]$"
  assert_line --regexp "^  peak memory: [0-9.]+ [kMG]B against [0-9.]+ [kMG]B: [0-9.]+ "
  assert_line --regexp "^a whole run of [0-9]+ samples"
  assert_line --regexp "^  the lab's own time: [0-9.]+ m?s per sample, [0-9.]+% of measuring$"
  refute_line --partial "failed: "
  [[ ! -e $LAB_RUNS ]] || fail "it left runs: $(ls "$LAB_RUNS")"
}

# bats test_tags=measures
@test "a target without nginx fails with exit 1 and the other part's rows" {
  mkdir "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/bash\necho "nginx version: nginx/1.0.0" >&2\n' >"$BATS_TEST_TMPDIR/bin/nginx"
  chmod +x "$BATS_TEST_TMPDIR/bin/nginx"
  PATH="$BATS_TEST_TMPDIR/bin:$PATH" lab selfbench --rows 1e3
  assert_failure 1
  assert_line --partial "k6's log, 1,000 rows"
  assert_line --regexp "^failed: overhead: .*1.0.0 is too old"
}

# bats test_tags=measures
@test "pairs: a round is measured in all three ways, kept, and not measured again" {
  lab selfbench pairs --rounds 1 --into "$BATS_TEST_TMPDIR/there"
  [[ $status == [01] ]] || fail "exit status $status: $stderr" # 1: on a busy machine nothing counts
  for way in plain slices together; do
    [[ $(grep -c "\"way\":\"$way\"" "$BATS_TEST_TMPDIR/there/pairs.jsonl") == 2 ]] || fail "$way: $(<"$BATS_TEST_TMPDIR/there/pairs.jsonl")"
  done
  lab selfbench pairs --rounds 1 --into "$BATS_TEST_TMPDIR/there" --plan
  assert_success
  [[ $stderr == *"1 rounds of ingress-nginx against ingress-nginx"*"; 1 done"* ]] || fail "$stderr"
}

@test "the plan of a long check says how long it takes and how to go on" {
  lab selfbench --neighbour 20 --plan --into "$BATS_TEST_TMPDIR/there"
  assert_success
  [[ $stderr == *"20 A/A runs"*"0 of them done"*" min"*"--neighbour 20 --into $BATS_TEST_TMPDIR/there"* ]] || fail "$stderr"
  lab selfbench --effects --plan
  assert_success
  [[ $stderr == *"extra-work-"*"40 blocks read in tens"* ]] || fail "$stderr"
}

#!/usr/bin/env bats
# `just selfbench`: real comparisons, as short as they can be, and what it says where something cannot be measured.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  # shellcheck disable=SC2034 # verbs.bash reads them; a test takes python off PATH
  limit_s=300 python=$(command -v python)
}

# shown FILTER: what a Python expression makes of the printed JSON, called `told`.
shown() {
  python -c "import json, sys; told = json.loads(sys.argv[1]); print($1)" "$output"
}

# bats test_tags=measures
@test "a sample and a bring-up are measured beside the same by hand" {
  lab selfbench samples bring-up --duration 1 --pairs 1 --json
  assert_equal "$status" 0
  assert_equal "$(shown 'len(told["rows"]) >= 10 and told["faults"] == []')" True
  assert_equal "$(shown 'all(row["lab"] > 0 and row["n"] == 1 for row in told["rows"])')" True
  # the same load: at a rate both report that rate
  assert_equal "$(shown '[abs(row["ratio"] - 1) < 0.1 for row in told["rows"] if row["what"] == "rate-500: reported rate"]')" "[True]"
  assert_equal "$(shown '[row["by_hand"] > 0 for row in told["rows"] if row["what"] == "local"]')" "[True]"
  # every target is measured, or named with what it needs
  assert_equal "$(shown '"remote: not measured: it needs a context: just selfbench bring-up --context NAME" in told["notes"]')" True
  [[ ! -e $LAB_RUNS ]] || fail "it left runs: $(ls "$LAB_RUNS")"
}

# bats test_tags=measures
@test "request rows are reduced to the same numbers as by hand" {
  lab selfbench analysis --rows 1e3
  assert_equal "$status" 0
  local log
  for log in "k6's log" "oha's rows"; do
    assert_line --regexp "^$log, 1,000: streamed, against polars +[0-9,.]+ rows/s +[0-9,.]+ rows/s +[0-9.]+ "
    assert_line --regexp "^$log, 1,000: streamed, against polars: peak memory +[0-9.]+ [kMG]B +[0-9.]+ [kMG]B +[0-9.]+ "
  done
  refute_line --partial "failed: "
}

# bats test_tags=measures
@test "a target without nginx fails with exit 1 and the other parts' rows" {
  mkdir "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/bash\necho "nginx version: nginx/1.0.0" >&2\n' >"$BATS_TEST_TMPDIR/bin/nginx"
  chmod +x "$BATS_TEST_TMPDIR/bin/nginx"
  PATH="$BATS_TEST_TMPDIR/bin:$PATH" lab selfbench bring-up analysis --rows 1e3 --pairs 1
  assert_equal "$status" 1
  assert_line --partial "k6's log, 1,000: streamed"
  assert_line --regexp "^failed: bring-up: .*1.0.0 is too old"
}

@test "the plan of a long check says how long it takes and how to go on" {
  lab selfbench --neighbour 20 --plan --into "$BATS_TEST_TMPDIR/there"
  assert_equal "$status" 0
  [[ $stderr == *"20 A/A runs"*"0 of them done"*" min"*"--neighbour 20 --into $BATS_TEST_TMPDIR/there"* ]] || fail "$stderr"
  lab selfbench --effects --plan
  assert_equal "$status" 0
  [[ $stderr == *"extra-work-"*"40 blocks read in tens"* ]] || fail "$stderr"
}

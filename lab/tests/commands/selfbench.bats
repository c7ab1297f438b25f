#!/usr/bin/env bats
# `just selfbench`: a whole run for real; of `calibrate` the plan, a real measurement of two generators, and its table again.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
}

@test "selfbench calibrate --plan names every generator, installed or not, every scenario and the minutes, and leaves nothing" {
  lab selfbench calibrate --plan --repeats 2 --json
  assert_success
  [[ $stderr == *"$(jq .planned <<<"$output") measurements"* ]] || fail "$stderr"
  for name in wrk wrk2 k6 oha hey; do
    [[ $stderr =~ (generator|left\ out)\ +$name ]] || fail "no $name in: $stderr"
  done
  for name in floor fixed bimodal pause ceiling; do
    [[ $stderr =~ scenario\ +$name:\ the\ server ]] || fail "no $name in: $stderr"
  done
  [[ $stderr =~ plan\ +[0-9]+\ measurements,\ 2\ of\ each ]] || fail "$stderr"
  [[ $stderr =~ duration\ +about\ [0-9]+\ min ]] || fail "$stderr"
  nothing_recorded
}

# bats test_tags=measures
@test "selfbench calibrate measures what wrk and k6 make of a pause, keeps it, and prints it again" {
  lab selfbench calibrate --generator wrk --generator k6 --scenario pause --scenario fixed --duration 4 --repeats 1 --seed 1
  assert_success
  [[ $stderr == *"4/4"* ]] || fail "$stderr"
  shown=$output
  assert_line --regexp '^wrk\*? +[0-9.]+ +1[0-9]\.[0-9]+ +0 +hidden$'
  assert_line --regexp '^k6\*? +[0-9.]+ +1[0-9]\.[0-9]+ +[1-9][0-9,]* +hidden$'
  assert_line --regexp '^wrk\*? +fixed +1[0-9]\.[0-9] '
  assert_line --regexp 'server on CPU .*generators on CPU'
  [[ $(unwrapped "$output") == *"the kernel stamped every arrival"* ]] || fail "$output"

  id=$(basename "$LAB_RUNS"/*-calibration-*)
  [[ -s $LAB_RUNS/$id/raw.zip && -s $LAB_RUNS/$id/histograms.parquet ]]
  lab selfbench calibrate --show "$id"
  assert_success
  assert_equal "$output" "$shown"
  lab selfbench calibrate --show "$id" --json
  assert_success
  assert_equal "$(jq -c '[.planned, (.measurements | length), [.generators[].name]]' <<<"$output")" '[4,4,["k6","wrk"]]'
}

# bats test_tags=measures
@test "the lab's own time is a share of a run's" {
  limit_s=300 lab selfbench overhead --sweep smoke
  assert_success
  assert_line --regexp "^a whole run of [0-9]+ samples"
  assert_line --regexp "^  the lab's own time: [0-9.]+ m?s per sample, [0-9.]+% of measuring$"
  [[ ! -e $LAB_RUNS ]] || fail "it left runs: $(ls "$LAB_RUNS")"
}

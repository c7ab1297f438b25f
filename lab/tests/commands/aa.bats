#!/usr/bin/env bats
# `just aa` and `bench --resolve`: a short real run of a variant against itself, and what is planned by it.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  limit_s=300
  sweep="$BATS_TEST_TMPDIR/tiny.toml"
  tiny_sweep "$sweep"
  sed -i "/^attempts/d" "$sweep" # by too few valid blocks nothing could be planned
}

# bats test_tags=measures
@test "aa measures a variant against itself, prints it again, and bench --resolve plans by it" {
  lab aa --sweep "$sweep" --blocks 6 --seed 1
  ((status <= 1)) || fail "$stderr" # 1: the machine was noisy
  [[ $stderr == *"compares   ingress-nginx-null-1 with ingress-nginx; the baseline with itself (noise check)"* ]] || fail "$stderr"
  [[ $(unwrapped "$output") == *"just bench ingress-nginx+KNOB --sweep $sweep --resolve "*" would take "* ]] || fail "it does not end in something to do: $output"
  run_id=$(basename "$LAB_RUNS"/*)
  printed=$output
  lab aa "$run_id"
  assert_equal "$output" "$printed"
  lab aa --resume "$run_id" # everything is there already
  assert_equal "$output" "$printed"
  python -m lab aa "$run_id" --json >"$BATS_TEST_TMPDIR/noise.json" || (($? == 1))
  assert_equal "$(jq .nulls.arms "$BATS_TEST_TMPDIR/noise.json")" 1

  # what aa says is what bench does
  blocks=$(jq '.rows[] | select(.metric == "cpu_per_request").resolve[] | select(.effect == 0.1).blocks // empty' "$BATS_TEST_TMPDIR/noise.json")
  lab bench log-off --sweep "$sweep" --resolve 10% --plan
  if [[ -n $blocks ]]; then
    assert_success
    plan=$(unwrapped "$stderr")
    [[ $plan == *" in $blocks blocks, seed"* ]] || fail "expected $blocks blocks: $stderr"
    [[ $plan == *"10% in CPU per request at ceiling is found with 90% probability, by the noise of $run_id"* ]] || fail "$stderr"
    [[ $plan == *"from the A/A run $run_id"* ]] || fail "$stderr"
    local said="no null comparison was judged" # the null arm lost a sample to the machine, though the A/A pair lost none
    (($(jq .nulls.compared "$BATS_TEST_TMPDIR/noise.json") == 0)) || said="claimed * null comparisons"
    # shellcheck disable=SC2053 # a pattern
    [[ $printed == *$said* ]] || fail "$printed"
  else
    assert_failure 2
    [[ $stderr == *"just aa"* ]] || fail "$stderr"
  fi
  run find "$LAB_RUNS" -mindepth 1 -maxdepth 1
  assert_equal "${#lines[@]}" 1 # a plan leaves nothing
}

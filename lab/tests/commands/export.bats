#!/usr/bin/env bats
# `just export`: the committed run in every format, k6's own outputs of a short real run.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  run_folder=data/reference/quick-keepalive
}

# samples: how many the committed run has.
samples() {
  python -c 'import sys; from lab.records.store import RunStore; print(len(RunStore.open(sys.argv[1]).samples()))' "$run_folder"
}

@test "export prints a CSV line for every sample, valid or not, and one of names" {
  lab export "$run_folder"
  assert_success
  assert_equal "${#lines[@]}" $(($(samples) + 1))
  assert_line --index 0 --regexp '^run,sample,.*,cpu_per_request_s,.*usage_proxy_cpu_s'
  assert_output --partial ",other-processes,"
}

@test "export --format json is an object per line" {
  lab export "$run_folder" --format json --what usage --sample 0001-b00-direct-rate-1000
  assert_success
  run python -c 'import json, sys; print(len({json.loads(line)["role"] for line in sys.stdin}) > 1)' <<<"$output"
  assert_output True
}

@test "export --output chooses the format by the name's end and leaves stdout alone" {
  lab export "$run_folder" --what histograms --output "$BATS_TEST_TMPDIR/h.parquet"
  assert_success
  assert_output ""
  run python -c 'import polars as pl, sys; print(pl.read_parquet(sys.argv[1])["count"].sum() > 0)' "$BATS_TEST_TMPDIR/h.parquet"
  assert_output True
  [[ $(find "$BATS_TEST_TMPDIR" -name '.*.partial') == "" ]]
}

@test "export --format openmetrics ends as the format asks for, and a reader that closes early is no fault" {
  lab export "$run_folder" --format openmetrics
  assert_success
  assert_line --index 1 "# TYPE lab_sample_valid gauge"
  assert_equal "${lines[-1]}" "# EOF"
  run bash -c "set -o pipefail; python -m lab export $run_folder --format openmetrics | head -n 1"
  assert_success
}

@test "export --what raw prints what the generator printed" {
  lab export "$run_folder" --what raw --sample 0001-b00-direct-rate-1000
  assert_success
  assert_output --regexp '^\{"lab":1,"duration_ms":'
}

# bats test_tags=measures
@test "bench --k6-out keeps k6's own rows beside each sample, and export prints them" {
  printf '%s\n' 'title = "Tiny"' 'question = "Does it work?"' 'blocks = 1' '[[points]]' 'name = "rate"' 'generator = "k6"' \
    'connections = 10' 'rate_rps = 50' 'duration_s = 1' 'warmup_s = 0' 'attempts = 1' >"$BATS_TEST_TMPDIR/tiny.toml"
  lab bench ingress-nginx --sweep "$BATS_TEST_TMPDIR/tiny.toml" --seed 1 --k6-out csv
  [[ $status -le 1 ]] || fail "$stderr"
  folder=("$LAB_RUNS"/*)
  samples=("${folder[0]}"/samples/*)
  for sample in "${samples[@]}"; do
    lab export "${folder[0]}" --what k6 --sample "$(basename "$sample")"
    assert_success
    assert_line --index 0 --regexp '^metric_name,timestamp,metric_value,'
    assert_line --regexp '^http_req_duration,[0-9]{16},.*,200,'
    lab export "${folder[0]}" --what k6-summary --sample "$(basename "$sample")"
    run python -c 'import json, sys; print(json.load(sys.stdin)["metrics"]["http_reqs"]["values"]["count"] > 0)' <<<"$output"
    assert_output True
  done
  lab export "${folder[0]}"
  assert_output --partial "--out csv=fileName=k6.csv.gz"
  [[ $stderr != *Traceback* ]]
}

# bats test_tags=slow
@test "bench refuses --k6-out where no load is k6's, and beside --resume" {
  printf '%s\n' 'title = "Tiny"' 'question = "Does it work?"' 'blocks = 1' '[[points]]' 'name = "ceiling"' 'generator = "wrk"' \
    'connections = 4' 'duration_s = 1' >"$BATS_TEST_TMPDIR/tiny.toml"
  refused "is made by k6 here, all by wrk" bench ingress-nginx --sweep "$BATS_TEST_TMPDIR/tiny.toml" --k6-out json
  refused "outputs of k6" bench --resume nowhere --k6-out json
  refused "invalid choice" bench ingress-nginx --k6-out xml
}

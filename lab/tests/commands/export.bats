#!/usr/bin/env bats
# `just export`: the committed run as CSV and for Prometheus; its other forms are in test_tables.py.

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

@test "export --format openmetrics ends as the format asks for, and a reader that closes early is no fault" {
  lab export "$run_folder" --format openmetrics
  assert_success
  assert_line --index 1 "# TYPE lab_sample_valid gauge"
  assert_equal "${lines[-1]}" "# EOF"
  run bash -c "set -o pipefail; python -m lab export $run_folder --format openmetrics | head -n 1"
  assert_success
}

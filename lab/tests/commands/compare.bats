#!/usr/bin/env bats
# `just compare`: a committed run by itself, two runs made of it, and a damaged one.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  verb=compare COLUMNS=100
  reference=$PWD/data/reference/quick-keepalive
}

compare() {
  lab compare "$@"
}

# copied NAME [PYTHON]: the committed run under another name; PYTHON changes its record `run`.
copied() {
  mkdir -p "$LAB_RUNS"
  unpacked "$reference" "$LAB_RUNS/$1"
  python - "$LAB_RUNS/$1/run.json" "$1" "${2-}" <<'PY'
import json, sys
path, name, change = sys.argv[1:]
run = json.load(open(path)) | {"id": name}
exec(change)
json.dump(run, open(path, "w"))
PY
}

@test "a run by itself: every metric of the variant against its baseline, and what to do" {
  compare "$reference"
  assert_success
  assert_line --regexp '^ceiling  64 connections, closed loop'
  assert_line --regexp '^  keepalive against ingress-nginx$'
  assert_line --regexp '^    CPU/req +µs +[0-9.]+ \[[0-9., ]+\] +[0-9.]+ \[[0-9., ]+\] +~ \[.*\] % +[0-9.]+ +6$'
  assert_line --partial "generator-limited; only CPU per request carries the effect"
  assert_line --regexp "^keepalive: no difference resolved in .*: don't bother unless [0-9.]+ % in CPU per request"
  assert_equal "$stderr" ''
}

@test "two runs: unpaired, both baselines, and everything that differs" {
  copied first
  copied second 'run["facts"] |= {"kernel": "6.1", "cpu": "EPYC", "boot_id": "x"}; run["variants"]["keepalive"]["manifests_sha256"] = "x"'
  compare first second
  assert_success
  assert_line --regexp '^base   first: local, sweep quick, 6 blocks$'
  assert_line --regexp '^other  second: .*; unpaired$'
  assert_line 'TWO MACHINES ARE COMPARED, not two settings: cpu: Intel(R) Xeon(R) Processor / EPYC'
  assert_line --regexp '^kernel: .* / 6\.1$'
  assert_line --partial 'keepalive: the manifests differ, so that is what is compared'
  assert_line --regexp '^    CPU/req .* ~ \[.*6\+6'
  assert_line --partial "ingress-nginx: no difference resolved"
  refute_output --partial boot_id
}

#!/usr/bin/env bats
# `just compare`: a committed run by itself, two runs made of it, every form of output, and what is refused.

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

# asked EXPRESSION: what it makes of the printed JSON, `told`.
asked() {
  run python -c "import json, sys; told = json.load(sys.stdin); print($1)" <<<"$output"
  assert_success
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

@test "the same as JSON" {
  compare "$reference" --json
  assert_success
  asked '[told["paired"], len(told["rows"]), len({(row["point"], row["metric"]) for row in told["rows"]}), told["verdicts"][0]["kind"]]'
  assert_output "[True, 12, 12, 'unresolved']"
}

@test "the same as Markdown" {
  compare "$reference" --markdown
  assert_success
  assert_line '| arm | metric | base | other | effect | p | n |'
  assert_line --regexp '^\| keepalive against ingress-nginx \| p99 \(ms\) \| .* \| ~ \[.*\] % \|'
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

# bats test_tags=slow
@test "named arms: of one run, and of two" {
  compare "$reference:ingress-nginx" "$reference:keepalive" --json
  assert_success
  asked '[told["paired"], {(row["base"]["arm"], row["other"]["arm"]) for row in told["rows"]}]'
  assert_output "[True, {('ingress-nginx', 'keepalive')}]"
  copied first
  copied second
  compare first:keepalive second:ingress-nginx --json
  assert_success
  asked '[told["paired"], {(row["base"]["arm"], row["other"]["arm"]) for row in told["rows"]}]'
  assert_output "[False, {('keepalive', 'ingress-nginx')}]"
}

@test "another generator is shown and not compared" {
  copied first
  copied second
  python - "$LAB_RUNS"/second/samples/*rate-1000*/sample.json <<'PY'
import json, sys
for path in sys.argv[1:]:
    sample = json.load(open(path)) | {"generator": "oha", "generator_version": "1.4"}
    json.dump(sample, open(path, "w"))
PY
  compare first second
  assert_success
  assert_line --partial 'generators differ: k6 1.8.1 / oha 1.4'
  assert_line --regexp '^    p99 +ms +1\.72 +1\.72 +– +– +6\+6'
}

@test "an interrupted run is compared as far as it goes" {
  copied first
  rm -r "$LAB_RUNS"/first/samples/*-b0[56]-*
  compare first
  assert_success
  assert_line --partial 'keepalive: 4 of 6 blocks: 2 blocks not measured'
  assert_line --partial 'need >= 6 blocks for an interval'
  assert_line --partial 'just bench --resume first'
}

# bats test_tags=slow
@test "what may not stand side by side is refused" {
  copied other 'for point in run["points"]: point["connections"] += 1'
  rm -r "$LAB_RUNS"/other/samples/*
  refused 'have no load in common: ceiling is another load: connections 64 / 65' "$reference" other
  mkdir -p "$LAB_RUNS/whole" && echo '{}' >"$LAB_RUNS/whole/ablation.json"
  refused 'is an ablation, not a run' whole
}

@test "a damaged run is told with its place" {
  copied first
  sample=$(find "$LAB_RUNS/first/samples" -name sample.json | sort | head -n 1)
  echo '{' >"$sample"
  refused "$sample: damaged" first
}

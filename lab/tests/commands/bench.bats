#!/usr/bin/env bats
# `just bench`: a short real run on the local target, and what may go wrong in one.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  sweep="$BATS_TEST_TMPDIR/tiny.toml"
  tiny_sweep "$sweep"
}

# environmental_or_ok: exit 0, or 1 only because the machine was noisy (which a shared CI runner may be).
environmental_or_ok() {
  [[ $status == 0 ]] && return
  assert_failure 1
  run recorded reason
  refute_line --regexp '^(bring|knob|limit|wrong|proxy|generator|too|non|errors|dropped|rate|listen|conntrack)'
}

# bats test_tags=smoke
@test "bench ingress-nginx --sweep smoke measures, records every file and prints a table" {
  lab bench ingress-nginx --sweep smoke
  [[ $output == *ingress-nginx* ]] || fail "$output $stderr"
  environmental_or_ok
  run_dir=$(echo "$LAB_RUNS"/*)
  for file in run.json manifests/ingress-nginx.yaml manifests/direct.yaml; do
    [[ -s $run_dir/$file ]] || fail "$file is missing"
  done
  [[ -n $(find "$run_dir/readback" -name '*.json') ]] || fail "no read-back"
  for sample in "$run_dir"/samples/*/; do
    for file in sample.json raw.zst hist.parquet usage.parquet; do
      [[ -s $sample/$file ]] || fail "$sample$file is missing"
    done
  done
  # the tables from the verbatim output are the tables from the records
  python -m lab table "$run_dir" --json >"$BATS_TEST_TMPDIR/stored.json" || (($? == 1))
  python -m lab table "$run_dir" --from-raw --json >"$BATS_TEST_TMPDIR/raw.json" || (($? == 1))
  run diff "$BATS_TEST_TMPDIR/stored.json" "$BATS_TEST_TMPDIR/raw.json"
  assert_success
}

# bats test_tags=measures
@test "bench works as an unprivileged user" {
  ((EUID == 0)) || skip "this is the unprivileged user already"
  id nobody >/dev/null || skip "no user nobody here"
  mkdir -p "$LAB_RUNS"
  chmod -R a+rwX "$BATS_TEST_TMPDIR"
  chmod a+x "$BATS_RUN_TMPDIR" "$BATS_TEST_TMPDIR/.." || true # bats' own folders may be closed to others
  run --separate-stderr setpriv --reuid nobody --regid nogroup --clear-groups \
    env HOME="$BATS_TEST_TMPDIR" LAB_RUNS="$LAB_RUNS" timeout 120 python -m lab bench ingress-nginx --sweep "$sweep"
  [[ $output == *ingress-nginx* ]] || fail "$output $stderr"
  environmental_or_ok
}

# bats test_tags=measures
@test "bench --traffic - measures the mix of a log, of which nothing is kept but shapes and counts" {
  python -c 'import sys; from lab.tests.support.access_logs import make_log; sys.stdout.buffer.write(make_log(5000))' >"$BATS_TEST_TMPDIR/log"
  run --separate-stderr timeout 240 python -m lab bench ingress-nginx --traffic - --traffic-rate 200 --points rate-200 --blocks 1 <"$BATS_TEST_TMPDIR/log"
  [[ $stderr == *"5,000 requests in the format ingress-nginx"* ]] || fail "$stderr"
  environmental_or_ok
  run_dir=$(echo "$LAB_RUNS"/*)
  run grep -rlE 'alice|/users/|shop-front|10[.][0-6][.][0-9]+[.]9' "$run_dir"
  assert_failure 1
  lab bench ingress-nginx --traffic "$run_dir" --plan
  assert_success
  [[ $stderr == *"5,000 requests in the format ingress-nginx"* ]] || fail "$stderr"
}

@test "runs folder that is a file" {
  touch "$LAB_RUNS"
  refused "$LAB_RUNS" bench ingress-nginx --sweep "$sweep"
}

# bats test_tags=slow
@test "an nginx that is too old is refused before anything starts" {
  mkdir "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/bash\necho "nginx version: nginx/1.0.0" >&2\n' >"$BATS_TEST_TMPDIR/bin/nginx"
  chmod +x "$BATS_TEST_TMPDIR/bin/nginx"
  PATH=$BATS_TEST_TMPDIR/bin:$PATH refused "1.0.0 is too old" bench ingress-nginx --sweep "$sweep"
}

#!/usr/bin/env bats
# `just bench`: a short real run on the local target, and what may go wrong in one.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  sweep="$BATS_TEST_TMPDIR/tiny.toml"
  tiny_sweep "$sweep"
}

# family PID: its descendants, a pid a line.
family() {
  local child
  for child in $(pgrep -P "$1"); do
    echo "$child"
    family "$child"
  done
}

# command_of PID PATTERN: the first descendant of PID whose command line matches, once there is one; half a minute at most.
command_of() {
  local deadline=$((SECONDS + 30)) found=""
  until [[ -n $found ]]; do
    ((SECONDS < deadline)) || { fail "no process '$2' after half a minute" || return; } # no errexit in $(…)
    found=$(for pid in $(family "$1"); do tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -Eq "$2" && echo "$pid"; done | head -n 1)
  done
  echo "$found"
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

# bats test_tags=slow
@test "a proxy killed during a sample makes it invalid, and the run goes on" {
  sed -i 's/duration_s = 1/duration_s = 3\nwarmup_s = 0/' "$sweep"
  python -m lab bench ingress-nginx --sweep "$sweep" >/dev/null 2>"$BATS_TEST_TMPDIR/err" 3>&- &
  lab_pid=$!
  master=$(command_of "$lab_pid" '^nginx: master process nginx -c /tmp/nginx/nginx.conf')
  command_of "$lab_pid" '^wrk -t|/wrk -t' >/dev/null
  kill -9 "$master"
  status=0
  wait_for_end "the lab" "$lab_pid" || status=$?
  assert_equal "$status" 1
  run bash -c "$(declare -f recorded); recorded arm | sort -u | wc -l; recorded reason | grep -cx proxy-died"
  assert_output $'3\n1'
  run cat "$BATS_TEST_TMPDIR/err"
  refute_output --partial Traceback
}

# bats test_tags=slow
@test "a run that another lab is measuring is not resumed, and the other lab unharmed" {
  python -m lab bench ingress-nginx --sweep "$sweep" --blocks 50 >/dev/null 2>"$BATS_TEST_TMPDIR/err" 3>&- &
  lab_pid=$!
  until_samples 1
  run_dir=$(echo "$LAB_RUNS"/*)
  sha256sum "$run_dir"/run.json "$run_dir"/samples/*/* >"$BATS_TEST_TMPDIR/before"
  lab bench --resume "$(basename "$run_dir")"
  assert_failure 2
  [[ $stderr == *"another lab"* ]] || fail "$stderr"
  run sha256sum --check --quiet "$BATS_TEST_TMPDIR/before"
  assert_success
  until_samples $(($(find "$LAB_RUNS" -name sample.json | wc -l) + 1))
  kill -INT "$lab_pid"
  status=0
  wait_for_end "the lab" "$lab_pid" || status=$?
  assert_equal "$status" 1
  run cat "$BATS_TEST_TMPDIR/err"
  assert_output --partial "just bench --resume"
}

# bats test_tags=slow
@test "a disk that fills up stops the run with a remedy and keeps what was recorded" {
  ((EUID == 0)) || skip "needs root to mount a small file system"
  mkdir -p "$LAB_RUNS"
  mount -t tmpfs -o size=60m lab-tiny "$LAB_RUNS"
  python -m lab bench ingress-nginx --sweep "$sweep" --blocks 5 >/dev/null 2>"$BATS_TEST_TMPDIR/err" 3>&- &
  lab_pid=$!
  until_samples 1
  dd if=/dev/zero of="$LAB_RUNS/filler" bs=1M status=none || echo "full, as meant"
  status=0
  wait_for_end "the lab" "$lab_pid" || status=$?
  rm "$LAB_RUNS/filler"
  kept=$(recorded verdict | wc -l)
  umount "$LAB_RUNS"
  assert_equal "$status" 1
  ((kept >= 1))
  run cat "$BATS_TEST_TMPDIR/err"
  assert_output --partial "No space left"
  assert_output --partial "--resume"
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

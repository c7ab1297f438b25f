#!/usr/bin/env bats
# `just ablate` and `just bench --configmap`: plans, and a tiny real ablation with its resumption.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  mine="$BATS_TEST_TMPDIR/mine.yaml"
}

# bats test_tags=slow
@test "ablate --plan names each knob with its load, what it is compared with, the runs and the minutes, and leaves nothing" {
  lab ablate backlog --plan --blocks 6 --json
  assert_success
  run jq -r '.ablation.subject, (.ablation.steps | length), (.runs | map(.duration_s) | add) == .duration_s' <<<"$output"
  assert_output $'backlog\n2\ntrue'
  lab ablate backlog --plan --blocks 6
  assert_success
  [[ $stderr == *"2 knobs of backlog"* ]] || fail "$stderr"
  [[ $stderr =~ knob\ +somaxconn-32768:\ .*\ in\ .*,\ on\ backlog-128:\ alone\ and\ cumulatively ]] || fail "$stderr"
  [[ $stderr =~ one\ at\ a\ time\ only:\ the\ same\ thing\ is\ set\ by[[:space:]]+somaxconn-32768 ]] || fail "$stderr"
  [[ $stderr =~ run\ 1/[0-9].*\ arms,\ .*about\ [0-9]+\ (s|min|h) ]] || fail "$stderr"
  [[ $stderr =~ duration\ +about.*in\ all ]] || fail "$stderr"
  nothing_recorded
}

# bats test_tags=measures
@test "ablate measures each knob alone and cumulatively, can be resumed, and its table can be printed again" {
  scratch_checkout quick
  lab ablate keepalive --blocks 1 --seed 1
  [[ $status -le 1 ]] || fail "$stderr"
  assert_line --regexp '^keep-alive-requests-10000 +ingress-nginx +quick'
  assert_line --regexp '^upstream-keepalive-requests-1000 +ingress-nginx +quick'
  shown=$output
  id=$(basename "$(dirname "$LAB_RUNS"/*/ablation.json)")
  run ls "$LAB_RUNS/$id/manifests/overlays/ingress-nginx-upto-upstream-keepalive-requests-1000"
  assert_success
  lab table "$id"
  assert_equal "$output" "$shown"
  # a run that was lost is measured again; one that is there is kept, and its manifests are the ablation's own
  rm -rf manifests
  lab ablate --resume "$id" --plan
  assert_success
  [[ $stderr == *"6 samples, 6 done"* ]] || fail "$stderr"
  rm -rf "$LAB_RUNS/"*-quick-*
  lab ablate --resume "$id" --plan
  assert_success
  [[ $stderr == *"6 samples, about"* ]] || fail "$stderr"
  lab table "$id" --json
  assert_failure 1
  [[ $output == *'"verdict": "not measured yet"'* ]] || fail "$output"
}

# bats test_tags=slow
@test "bench --configmap reads a pipe once, tells all that is left out, and plans the whole file beside the keys" {
  local way keys=('keep-alive-requests: 5000' 'keep-alive: "9"' 'use-gzip: "false"' 'worker-processes: "4096"' 'keepalive-timeout: "9"' 'http-snippet: |')
  {
    printf '%s\n' "${keys[@]}"
    printf '  # a long comment\n%.0s' {1..15000}
  } >"$mine"
  for way in - /dev/stdin; do
    lab bench --configmap "$way" --plan <"$mine"
    assert_success
    [[ $(grep -c '^reading .* kB of settings' <<<"$stderr") == 1 ]] || fail "$stderr"
    [[ $stderr == *"keep-alive-requests-5000: cpu_per_request in quick: alone"* ]] || fail "$way: $stderr"
    [[ $stderr == *"your-configuration: cpu_per_request in quick: alone"* ]] || fail "$stderr"
    [[ $stderr == *"use-gzip: nothing to measure: 'false' is the default"* ]] || fail "$stderr"
    [[ $stderr == *"worker-processes-4096: not measurable here: cores"* ]] || fail "$stderr"
    [[ $stderr == *"keepalive-timeout: ingress-nginx 1.15.1 has no such key, and ignores it"* ]] || fail "$stderr"
    [[ $stderr == *"http-snippet: nothing to measure: alone it changes no directive"* ]] || fail "$stderr"
  done
  lab bench --configmap <(echo 'keep-alive: "9"') --plan
  assert_success
  [[ $stderr == *"keep-alive-9: "* ]] || fail "$stderr"
  nothing_recorded
}

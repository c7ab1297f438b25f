#!/usr/bin/env bats
# A user's own configuration: `just check`, what of it `just bench --config` measures, and `just gate --config`.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  mine="$BATS_TEST_TMPDIR/mine.yaml" old="$BATS_TEST_TMPDIR/old.yaml"
  printf 'kind: ConfigMap\ndata:\n  %s\n  %s\n  %s\n  %s\n' 'keep-alive-requests: "5000"' 'keep-alive: "9"' 'use-gzip: "false"' \
    'keepalive-timeout: "9"' >"$mine"
  printf 'kind: ConfigMap\ndata:\n  keep-alive-requests: "5000"\n' >"$old"
}

@test "check tells what each key does, of a file and of a pipe, and measures nothing" {
  local way
  for way in "$mine" -; do
    lab check "$way" <"$mine"
    assert_success
    assert_equal "$stderr" ""
    assert_output --partial "4 settings: 1 does nothing, 1 is the default, 2 can be measured."
    assert_line "  keepalive-timeout  you mean keep-alive"
    assert_line --regexp '^DEFAULT ANYWAY +use-gzip: false$'
    assert_line --regexp '^TEST   all together: [0-9]+ min \(--whole\)   each by itself: [0-9]+ min   one: '
    assert_line --regexp '^  just bench --config \S+ --only keep-alive-requests$'
  done
  nothing_recorded
}

@test "check prints JSON, and refuses what is no configuration as bench does" {
  lab check "$mine" --json
  assert_success
  run jq -r '.settings, (.keys | map(.kind) | join(" ")), (.duration_s.whole < .duration_s.both)' <<<"$output"
  assert_output $'4\ndefault unknown\ntrue'
  echo 'resource "helm_release" "x" {' >"$mine"
  refused "is Terraform (line 1)" check "$mine"
}

# bats test_tags=slow
@test "bench --config measures the whole file alone, or some keys, or all as it did" {
  lab bench --config "$mine" --whole --plan
  assert_success
  [[ $stderr == *"1 knobs of"* && $stderr == *"your-configuration: cpu_per_request in quick: alone"* ]] || fail "$stderr"
  lab bench --config "$mine" --only keep-alive --plan
  assert_success
  [[ $stderr == *"1 knobs of"* && $stderr == *"keep-alive-9: "* && $stderr != *"your-configuration: "* ]] || fail "$stderr"
  lab bench --configmap "$mine" --plan
  assert_success
  [[ $stderr == *"3 knobs of"* ]] || fail "$stderr"
  nothing_recorded
}

# bats test_tags=slow
@test "gate --config plans the new file against the old one, as two files and as one in another repository" {
  lab gate --config "$old" "$mine" --plan
  assert_success
  [[ $stderr == *"compares   ingress-nginx+new-configuration with ingress-nginx+old-configuration; "* ]] || fail "$stderr"
  nothing_recorded
  printf '  proxy-buffer-size: "4q"\n' | cat "$old" - >"$BATS_TEST_TMPDIR/refused.yaml"
  lab gate --config "$BATS_TEST_TMPDIR/refused.yaml" "$mine" --plan
  assert_success
  [[ $(unwrapped "$stderr") == *"refused.yaml is measured without what the controller refuses: proxy-buffer-size: "* ]] || fail "$stderr"
  git init -q "$BATS_TEST_TMPDIR"
  git -C "$BATS_TEST_TMPDIR" add old.yaml
  git -C "$BATS_TEST_TMPDIR" -c user.name=t -c user.email=t@t commit -qm "then"
  cp "$mine" "$old"
  lab gate --config "$old" --against HEAD --plan
  assert_success
  [[ $stderr == *"compares   ingress-nginx+new-configuration with ingress-nginx+old-configuration; "* ]] || fail "$stderr"
  nothing_recorded
}

# bats test_tags=slow
@test "gate --config of files that render the same ends at once, and tells what it cannot compare here" {
  cp "$old" "$mine"
  printf '  use-gzip: "false"\n  use-forwarded-headers: "true"\n' >>"$mine"
  lab gate --config <(cat "$old") "$mine"
  assert_success
  assert_output --partial "0 regressions: no rendered manifest of $mine differs from /dev/fd/"
  assert_output --partial "not compared on this target: use-forwarded-headers (\`just check\` says why)"
  nothing_recorded
}

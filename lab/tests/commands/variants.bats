#!/usr/bin/env bats
# `just list` and `just show`: what there is, and what a variant changes. Neither starts or writes anything.

bats_require_minimum_version 1.11.0

setup() {
  bats_load_library bats-support
  bats_load_library bats-assert
  cd "$BATS_TEST_DIRNAME/../../.." || return
  export COLUMNS=160
}

# copy: a scratch checkout to change, in which `just` works.
copy() {
  cp -r justfile lab manifests "$BATS_TEST_TMPDIR"
  cd "$BATS_TEST_TMPDIR" || return
}

# fails TEXT ARG...: the command ends with 2 and says TEXT on stderr only, without a traceback.
fails() {
  local text=$1
  shift
  run --separate-stderr just "$@"
  assert_failure 2
  assert_output ""
  [[ $stderr == *"$text"* ]] || fail "expected '$text' in: $stderr"
  [[ $stderr != *Traceback* ]] || fail "$stderr"
}

# bats test_tags=slow
@test "list names every variant, knob and sweep there is a file for" {
  run --separate-stderr just list
  assert_success
  local path name
  for path in manifests/overlays/*/ manifests/components/*/ lab/sweeps/*.toml okd-quick reload-endpoints-quick; do
    name=$(basename "$path" .toml)
    assert_line --regexp "^ *$name( |$)"
  done
}

@test "list shows a variant's baseline, knobs and study on its line" {
  COLUMNS=250 run just list
  assert_line --regexp '^backlog +backlog-128 +somaxconn-32768 +digitalocean +accept queue raised'
  assert_line --regexp '^direct .*reference of every run'
}

@test "list keeps names whole when the terminal is narrow" {
  COLUMNS=60 run just list
  assert_success
  assert_output --partial upstream-keepalive-requests-1000
}

@test "list --json is JSON that holds the same" {
  just list --json >"$BATS_TEST_TMPDIR/list.json"
  run python -c '
import json, sys
told = json.load(open(sys.argv[1]))
print(*(item["name"] for item in told["variants"]), *(item["name"] for item in told["knobs"]))' "$BATS_TEST_TMPDIR/list.json"
  assert_output --partial keepalive
  assert_output --partial somaxconn-32768
}

@test "list writes nothing" {
  copy
  touch -d '1 minute' now
  just list >/dev/null
  just show keepalive >/dev/null
  run find . -newer now -not -path '*__pycache__*' -not -name .
  assert_output ""
}

@test "show tells a variant's knobs, what they claim, how they are read back, and the diff" {
  run --separate-stderr just show keepalive
  assert_success
  assert_line --regexp '^keepalive: '
  assert_line --regexp '^  baseline +ingress-nginx$'
  assert_line --regexp '^knob keep-alive-requests-10000: '
  assert_line --regexp '^  hypothesis +.*CPU seconds per request'
  assert_line --regexp '^  sweep +quick$'
  assert_line --regexp '^  primary metric +cpu_per_request$'
  assert_line '  proxy: nginx -T: keepalive_requests in http/upstream = 1000'
  assert_line "+  keep-alive-requests: '10000'"
  assert_line "+  upstream-keepalive-requests: '1000'"
}

@test "show prints a diff that patch could read: no colours in a pipe, no wrapped lines" {
  COLUMNS=40 run --separate-stderr just show backlog
  assert_success
  assert_line '-            - net.core.somaxconn=128'
  assert_line '+            - net.core.somaxconn=32768'
  refute_output --partial $'\e['
}

@test "show of a root lists its objects" {
  run just show direct
  assert_success
  assert_line '  Deployment backend'
  refute_line --regexp '^  [A-Z][A-Za-z]+ proxy'
}

@test "show takes a variant without a folder" {
  run just show backlog-128+keep-alive-requests-10000
  assert_success
  assert_line --regexp '^  inherits +somaxconn-128$'
  assert_line --regexp '^knob keep-alive-requests-10000: '
}

# bats test_tags=slow
@test "a knob can be shown as soon as its folder exists" {
  copy
  mkdir manifests/components/workers-2
  cat >manifests/components/workers-2/kustomization.yaml <<'YAML'
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
metadata:
  annotations:
    lab/title: two workers
    lab/hypothesis: In a closed loop the rate rises, because two cores serve it.
    lab/sweep: quick
    lab/primary-metric: rate
    lab/readback: |
      - {kind: nginx, name: worker_processes, value: 2}
configMapGenerator:
  - name: ingress-nginx-controller
    behavior: merge
    literals:
      - worker-processes=2
YAML
  run just show ingress-nginx+workers-2
  assert_success
  assert_line "+  worker-processes: '2'"
  run just list
  assert_line --regexp '^workers-2 +quick +rate '
}

@test "a damaged component is told with its file and key, by list and by show" {
  copy
  sed -i 's,lab/sweep,lab/sweeep,' manifests/components/somaxconn-128/kustomization.yaml
  fails "manifests/components/somaxconn-128/kustomization.yaml: metadata.annotations: unknown key 'lab/sweeep'" list
  fails "did you mean 'lab/sweep'?" show backlog
}

@test "without kustomize on PATH show says where to get it" {
  mkdir "$BATS_TEST_TMPDIR/bin"
  ln -s "$(command -v just)" "$BATS_TEST_TMPDIR/bin"
  printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v python)" >"$BATS_TEST_TMPDIR/bin/python"
  chmod +x "$BATS_TEST_TMPDIR/bin/python"
  PATH="$BATS_TEST_TMPDIR/bin:/usr/bin:/bin" fails 'kustomize: not found on PATH' show ingress-nginx
  [[ $stderr == *scripts/shell* ]]
}

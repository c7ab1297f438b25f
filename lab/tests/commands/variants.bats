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
@test "list names every variant, knob, sweep and study there is a file for" {
  run --separate-stderr just list
  assert_success
  local path name
  for path in manifests/overlays/*/ manifests/components/*/ lab/sweeps/*.toml lab/studies/*.toml okd-quick reload-endpoints-quick; do
    name=$(basename "$path" .toml)
    grep -Eq "^ *$name( |$)" <<<"$output" || fail "list does not name $name"
  done
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

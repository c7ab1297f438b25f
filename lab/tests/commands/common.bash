# shellcheck shell=bash
# What bats files share that measure or have a checkout of their own; each sources this in its setup.

bats_load_library bats-support
bats_load_library bats-assert
# shellcheck source=lab/tests/commands/waiting.bash
source "$BATS_TEST_DIRNAME/waiting.bash"
root=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd -P)
stubs=$BATS_TEST_TMPDIR/stubs calls=$BATS_TEST_TMPDIR/calls checkout=$BATS_TEST_TMPDIR/checkout

# own_checkout PATH…: goes into a copy of these of the project's, whose .cache is the test's own; HOME, KUBECONFIG too, and
# stubs come first on PATH.
own_checkout() {
  mkdir -p "$stubs" "$checkout"
  touch "$calls"
  cp -r "${@/#/$root/}" "$checkout"
  cd "$checkout" || return
  export HOME=$BATS_TEST_TMPDIR KUBECONFIG=$BATS_TEST_TMPDIR/kubeconfig PATH=$stubs:$PATH PYTHONPATH=$checkout
}

stub() { # NAME BODY: a program that is found first and notes how it was called
  printf '#!/usr/bin/env bash\necho "%s $*" >>%q\n%s\n' "$1" "$calls" "$2" >"$stubs/$1"
  chmod +x "$stubs/$1"
}

# somebody_elses_kubeconfig CURRENT: KUBECONFIG with the contexts `production` and `mine`, the current one CURRENT or none;
# nobody answers at either.
somebody_elses_kubeconfig() {
  cat >"$KUBECONFIG" <<YAML
apiVersion: v1
kind: Config
current-context: "${1-}"
contexts: [{name: production, context: {cluster: c, user: u}}, {name: mine, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
YAML
}

tiny_sweep() { # FILE: the least that can be measured, one second of it, once, however noisy the machine is
  cat >"$1" <<'TOML'
title = "Tiny"
question = "Does it work?"
blocks = 1

[[points]]
name = "ceiling"
generator = "wrk"
connections = 4
duration_s = 1
attempts = 1
TOML
}

# until_samples COUNT: wait until that many samples are recorded, whole, two minutes at most, and no longer than a lab in $background lives.
until_samples() {
  local deadline=$((SECONDS + 120))
  until (($(find "$LAB_RUNS" -path '*/samples/[!.]*/sample.json' 2>/dev/null | wc -l) >= $1)); do
    ((SECONDS < deadline)) || fail "no $1 samples after two minutes: $(cat "$BATS_TEST_TMPDIR/err" 2>/dev/null)"
    [[ -z ${background-} ]] || kill -0 "$background" || fail "the lab has ended: $(cat "$BATS_TEST_TMPDIR/err")"
    sleep 0.05
  done
}

recorded() { # FIELD…: the fields of every sample's record, a line each
  python - "$LAB_RUNS" "$@" <<'PYTHON'
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*/samples/*/sample.json")):
    record = json.loads(path.read_text())
    print(*(record[name] for name in sys.argv[2:]))
PYTHON
}

# scratch_checkout SWEEP: goes into a copy of what the lab runs from, in which that sweep takes a second.
scratch_checkout() {
  cp -r justfile lab manifests "$BATS_TEST_TMPDIR"
  mkdir -p "$BATS_TEST_TMPDIR/data"
  cp -r data/published "$BATS_TEST_TMPDIR/data"
  cd "$BATS_TEST_TMPDIR" || return
  tiny_sweep "lab/sweeps/$1.toml"
}

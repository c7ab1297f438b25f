#!/usr/bin/env bats
# The target apiserver by the command line. Skips where scripts/controllers has not made what it runs, which takes minutes:
# KUBEBUILDER_ASSETS and LAB_IMAGES name other places for it.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  local missing
  missing=$(python -c 'from lab.tests.targets.apiserver.test_apiserver import missing; print(missing().splitlines()[0] if missing() else "")')
  [[ -z $missing ]] || skip "$missing"
}

# ours: the lab's own processes and its servers, of this test alone.
ours() {
  grep -lsz "^LAB_RUNS=$LAB_RUNS$" /proc/[0-9]*/environ | cut -d/ -f3 |
    xargs -r ps -o pid=,args= -p | grep -E "kube-apiserver --etcd|etcd --name|lab with" || true # there may be none
}

# bats test_tags=measures
@test "a short bench ends in a table of the real controller, and every sample was read back" {
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  lab bench keepalive --target apiserver --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1
  ((status < 2)) || fail "$stderr"
  assert_output --partial keepalive
  run python - "$LAB_RUNS" <<'PYTHON'
import json, pathlib, sys

(run,) = pathlib.Path(sys.argv[1]).glob("*/run.json")
facts = json.loads(run.read_text())["facts"]
assert facts["target"].startswith("apiserver: the real controllers"), facts
assert "ingress-nginx" in facts["controllers"] and facts["kube-apiserver"].startswith("v1."), facts
read = [item for path in run.parent.glob("readback/*.json") for item in json.loads(path.read_text())]
assert read and all(item["ok"] for item in read), read
deployed = [pod for path in run.parent.glob("deployed/*.json") for pod in json.loads(path.read_text())]
assert deployed, run.parent
machine = {"steal", "other-processes", "generator-saturated", "rate-not-achieved", "dropped"}  # a shared runner's
reasons = {json.loads(path.read_text())["reason"] for path in run.parent.glob("samples/*/sample.json")}
assert reasons <= {None, *machine}, reasons
PYTHON
  assert_success
}

# bats test_tags=measures
@test "Traefik's ingress-nginx provider opens a connection for most requests, its Ingress provider for next to none" {
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  sed -i 's/^connections = .*/connections = 16/' "$BATS_TEST_TMPDIR/tiny.toml"
  lab bench traefik-ingress-nginx --against traefik-ingress --target apiserver --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1
  ((status < 2)) || fail "$stderr"
  run python - "$LAB_RUNS" <<'PYTHON'
import json, pathlib, sys

(run,) = pathlib.Path(sys.argv[1]).glob("*/run.json")
assert "traefik 3." in json.loads(run.read_text())["facts"]["proxies"]
samples = [json.loads(path.read_text()) for path in run.parent.glob("samples/*/sample.json")]
alone = [each for each in samples if each["role"] in ("variant", "baseline") and not each["pair"]]
opened = {each["arm"]: each["counters"]["proxy/ActiveOpens"] / each["requests"] for each in alone}
assert opened["traefik-ingress-nginx"] > 0.2 and opened["traefik-ingress"] < 0.1, opened
machine = {"steal", "other-processes", "generator-saturated"}  # a shared runner's
assert {each["reason"] for each in samples} <= {None, *machine}, samples
PYTHON
  assert_success
}

# bats test_tags=measures
@test "a short bench of Contour ends in a table, its knob read back from its Envoy" {
  python -c 'from lab.targets.local import proxies; raise SystemExit(proxies.found("contour") is None)' ||
    skip "contour is not built: scripts/bring contour"
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  lab bench contour-access-log-off --target apiserver --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1
  ((status < 2)) || fail "$stderr"
  assert_output --partial contour+contour-access-log-off
  run python - "$LAB_RUNS" <<'PYTHON'
import json, pathlib, sys

(run,) = pathlib.Path(sys.argv[1]).glob("*/run.json")
assert "contour 1." in json.loads(run.read_text())["facts"]["proxies"], run
read = [item for path in run.parent.glob("readback/*.json") for item in json.loads(path.read_text())]
assert read and all(item["ok"] for item in read), read
PYTHON
  assert_success
}

# bats test_tags=slow
@test "a knob that is left out of ten overlays is noticed by what the running controller says" {
  local overlays=(gzip log-off upstream-close upstream-pool-1 workers-4 open-files-1024 worker-connections-512 upload-buffer-1m download-memory luajit-off)
  limit_s=600 lab sabotage "${overlays[@]}" --target apiserver
  assert_success
  local overlay
  for overlay in "${overlays[@]}"; do
    assert_line --regexp "^$overlay .* caught "
  done
}

# bats test_tags=slow
@test "two at once do not meet" {
  # its own API server, on the same ports
  python -m lab with --target apiserver ingress-nginx true >/dev/null 2>&1 3>&- &
  local other=$!
  # shellcheck disable=SC2016 # the inner shell's
  lab with --target apiserver ingress-nginx sh -c 'curl -so /dev/null -w "%{http_code}" -H "Host: bench.lab.test" "$LAB_URL/1kB.bin"'
  assert_success
  assert_output 200
  wait_for_end "the other lab" "$other"
}

# bats test_tags=slow
@test "kill -9 leaves no process of it" {
  python -m lab with --target apiserver ingress-nginx sleep 60 >/dev/null 2>&1 3>&- &
  local lab=$! deadline=$((SECONDS + 60))
  until [[ $(ours) == *kube-apiserver* ]]; do
    ((SECONDS < deadline)) || fail "no API server within a minute"
    sleep 0.1
  done
  kill -9 "$lab"
  until [[ -z $(ours) ]]; do
    ((SECONDS < deadline)) || fail "still there: $(ours)"
    sleep 0.1
  done
}

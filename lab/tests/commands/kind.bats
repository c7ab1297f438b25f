#!/usr/bin/env bats
# up, bench and down on a real kind cluster of the test's own. Skips where there is no Docker engine, or an image that Docker
# has not and cannot pull: LAB_IMAGES names others.
# shellcheck disable=SC2030,SC2031 # `lab` sets status and stderr in the very shell of the test that calls it
# bats file_tags=kind,measures

bats_require_minimum_version 1.11.0

needed_images() { # what `just up kind` cannot do without, built on or pulled
  python -c '
from lab.targets.cluster import images
chosen = images.load()
print(*(chosen.named(short) for short in ("kind-node", "debian", *(s for s, only_for in images.of_variants().items() if not only_for))))'
}

setup_file() {
  cd "$BATS_TEST_DIRNAME/../../.." || return
  export LAB_KIND_NAME=${LAB_TEST_KIND_NAME:-ingress-lab-test}
  [[ -n $(docker info --format '{{.ServerVersion}}' 2>/dev/null) ]] || skip "no Docker engine answers here"
  local image
  for image in $(needed_images); do
    docker image inspect "$image" >/dev/null 2>&1 || timeout 30 docker manifest inspect "$image" >/dev/null 2>&1 ||
      skip "Docker neither holds $image nor can pull it: LAB_IMAGES=FILE names another"
  done
  just down kind # of a test that was killed
  timeout 420 just up kind
}

teardown_file() {
  cd "$BATS_TEST_DIRNAME/../../.." || return
  local name
  for name in "$LAB_KIND_NAME" "$LAB_KIND_NAME-2"; do
    [[ -z $(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$name" 2>/dev/null) ]] || LAB_KIND_NAME=$name just down kind
  done
}

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  export KUBECONFIG=$BATS_TEST_TMPDIR/kubeconfig
  # shellcheck disable=SC2034 # verbs.bash reads it
  limit_s=240
  somebody_elses_kubeconfig production # which must never be asked
  sweep=$BATS_TEST_TMPDIR/tiny.toml
  tiny_sweep "$sweep"
}

# A test that fails in the middle leaves neither its lab nor a paused node.
teardown() {
  [[ -z ${background-} ]] || ! kill -TERM "$background" 2>/dev/null || timeout 60 tail --pid="$background" -f /dev/null
  [[ $(docker inspect --format '{{.State.Status}}' "$LAB_KIND_NAME-control-plane" 2>/dev/null) != paused ]] ||
    docker unpause "$LAB_KIND_NAME-control-plane"
}

of_cluster() { # ARG…: kubectl on the test's own cluster
  kubectl --kubeconfig "$PWD/.cache/kind/$LAB_KIND_NAME.kubeconfig" --context "kind-$LAB_KIND_NAME" --request-timeout 20s "$@"
}

left_over() { # what the lab's variants left in the cluster: nothing but the generator's place may stay
  local kinds=namespaces,clusterroles,clusterrolebindings,ingressclasses
  ! of_cluster get crd gatewayclasses.gateway.networking.k8s.io >/dev/null 2>&1 || kinds+=,gatewayclasses
  of_cluster get "$kinds" -l lab/run --output name
}

# finished: $status is 0, or 1 only because the machine was noisy (which a shared CI runner may be).
finished() {
  ((status == 0)) || { ((status == 1)) && recorded reason | grep -qE '^(steal|other-processes)'; } ||
    fail "ended with $status, reasons: $(recorded reason | xargs); $output $stderr"
}

measured() { # ARMS: finished, and every one of these has a sample
  finished
  [[ $output == *keepalive* ]] || fail "$output $stderr"
  run bash -c "$(declare -f recorded); recorded arm | sort -u | xargs"
  assert_output "$1"
  run recorded reason
  refute_line --regexp '^(bring|knob|limit|wrong|proxy|generator|too|non|errors|dropped|rate|listen|conntrack)'
}

@test "a pair of the real controller is up side by side, measured by turns and together on two generations, read back, and leaves nothing" {
  printf '%s\n' 'title = "Pairs"' 'question = "Are both up?"' 'blocks = 1' 'itself = true' '[[points]]' 'name = "turns"' 'generator = "wrk"' \
    'connections = 16' 'duration_s = 2' 'generations = 2' 'attempts = 1' '[[points]]' 'name = "rate"' 'generator = "k6"' 'connections = 10' 'rate_rps = 100' \
    'duration_s = 2' 'repeats = 2' 'attempts = 1' >"$sweep"
  limit_s=600 lab bench keepalive --target kind --sweep "$sweep"
  ((status < 2)) || fail "$stderr"
  run recorded reason
  refute_line --regexp '^(bring|knob|limit|wrong|proxy|generator-[^s]|too|non|errors|listen|conntrack)' # a busy machine's are none of these
  run python - "$LAB_RUNS" <<'PYTHON'
import json, pathlib, sys
found = [json.loads(path.read_text()) for path in pathlib.Path(sys.argv[1]).glob("*/samples/*/sample.json")]
pairs = [one for one in found if one["pair"]]
renewed = {tuple(one["pair"]["renewed"]["began"]) for one in pairs if one["pair"]["renewed"]}
print(sorted({one["pair"]["side"] for one in pairs}), sorted({one["pair"]["scheme"] for one in pairs}), len(renewed) > 1)
PYTHON
  # A busy machine may not carry the rate for two sides at once: the probe says so, and solo samples are planned there.
  local schemes="'slices', 'together'"
  [[ $(cat "$LAB_RUNS"/*/run.json) != *"two sides at once are more than this target carries (probe)"* ]] || schemes="'slices'"
  assert_output "['left', 'right'] [$schemes] True"
  run grep -rhoE 'keepalive_requests|somaxconn' "$LAB_RUNS"/*/readback
  assert_line keepalive_requests
  run left_over
  assert_output namespace/ingress-lab-client
}

@test "a knob of the kernel reads back, and a sabotaged one does not" {
  lab sabotage backlog --target kind
  assert_success
  [[ $stderr == *"caught"* ]] || fail "$stderr"
}

# bats test_tags=long
@test "knobs of the pod, its address, its disk, the controller's snippets and the node read back, and a sabotaged one does not" {
  lab sabotage pod-address --target kind
  assert_success
  [[ $stderr == *"caught"* ]] || fail "$stderr"
  lab sabotage --intact --target kind pod-workers-1 log-slow-disk digitalocean digitalocean-node proxy-cache qinng-tuned nginx
  assert_success
  [[ $output == *"7 holds"* ]] || fail "$output"
}

outcomes() { # ARM POINT METRIC…: a line with these outcomes of every such sample (its last try)
  python - "$LAB_RUNS" "$@" <<'PYTHON'
import json, pathlib, sys
runs, arm, point, *metrics = sys.argv[1:]
last = {}
for path in pathlib.Path(runs).glob("*/samples/*/sample.json"):
    record = json.loads(path.read_text())
    if record["arm"] == arm and record["point"]["name"] == point:
        last[record["block"]] = max(last.get(record["block"], record), record, key=lambda one: one["attempt"])
assert last, f"no sample of {arm} at {point}"
for record in last.values():
    assert record["reason"] not in ("event-log", "clocks", "request-log", "disturbance-failed", "bring-up-failed"), record["detail"]
    print(*(record["outcome"][name] for name in metrics))
PYTHON
}

# bats test_tags=long
@test "a pod that is deleted is replaced, and the requests tell how long nothing answered" {
  printf '%s\n' 'title = "Deleted"' 'question = "How long is it missed?"' 'blocks = 1' '[[points]]' 'name = "gone"' 'generator = "k6"' \
    'connections = 300' 'rate_rps = 50' 'duration_s = 12' 'keepalive = false' 'timeout_s = 4' 'attempts = 1' \
    'disturbance = {kind = "kill", how = "delete", at_s = 2, recovers_s = 9}' >"$sweep"
  limit_s=900 lab bench ingress-nginx --target kind --sweep "$sweep"
  ((status < 2)) || fail "$stderr"
  echo "$stderr" >"$BATS_TEST_TMPDIR/said"
  run outcomes ingress-nginx gone failed gap_s replaced_s restarts
  ((status == 0)) || fail "$output: $(<"$BATS_TEST_TMPDIR/said")"
  read -r failed gap replaced restarts <<<"$output"
  echo "# deleted: $failed failed, $gap s without an answer, replaced after $replaced s" >&3
  python -c 'import sys; failed, gap, replaced, restarts = map(float, sys.argv[1:]); assert failed > 0 and 0.1 < gap < 10 and gap / 3 < replaced < 10 and not restarts' \
    "$failed" "$gap" "$replaced" "$restarts"
  run outcomes ingress-nginx control failed restarts
  assert_success
  assert_output "0.0 0.0"
  run left_over
  assert_output namespace/ingress-lab-client
}

@test "a second lab on the same cluster is refused, and the first one unharmed" {
  python -m lab bench ingress-nginx --target kind --sweep "$sweep" --blocks 3 >/dev/null 2>"$BATS_TEST_TMPDIR/err" 3>&- &
  local first=$!
  background=$first
  until_samples 1
  LAB_RUNS=$BATS_TEST_TMPDIR/second refused "lease" bench ingress-nginx --target kind --sweep "$sweep"
  until_samples $(($(find "$LAB_RUNS" -name sample.json | wc -l) + 1))
  kill -TERM "$first"
  local status=0
  wait_for_end "the lab" "$first" || status=$?
  assert_equal "$status" 1
  run cat "$BATS_TEST_TMPDIR/err"
  assert_output --partial "just bench --resume"
  run left_over
  assert_output namespace/ingress-lab-client
}

# bats test_tags=long
@test "an API server that goes away ends the run with a message, and --resume finishes it" {
  python -m lab bench ingress-nginx --target kind --sweep "$sweep" >/dev/null 2>"$BATS_TEST_TMPDIR/err" 3>&- &
  local lab=$! status=0
  background=$lab
  until_samples 1
  docker pause "$LAB_KIND_NAME-control-plane"
  timeout 120 tail --pid="$lab" -f /dev/null || fail "still running after two minutes: $(cat "$BATS_TEST_TMPDIR/err")"
  wait_for_end "the lab" "$lab" || status=$?
  docker unpause "$LAB_KIND_NAME-control-plane"
  assert_equal "$status" 1
  run cat "$BATS_TEST_TMPDIR/err"
  assert_output --partial "context kind-$LAB_KIND_NAME"
  assert_output --partial "just bench --resume"
  refute_output --partial Traceback
  local deadline=$((SECONDS + 90))
  until lab bench --resume "$(basename "$LAB_RUNS"/*)" && [[ $stderr != *lease* ]]; do # the lost lab's lease runs out
    ((SECONDS < deadline)) || fail "$stderr"
    sleep 2
  done
  finished
  run bash -c "$(declare -f recorded); recorded block arm attempt generation | sort | uniq -d"
  assert_output ""
}

shared() { # what was made of every sample of two generators, a line each; fails where the parts, their sum and the proxy do not agree
  python - <<'PYTHON'
import json, os, pathlib
from lab.records.store import RunStore
(folder,) = pathlib.Path(os.environ["LAB_RUNS"]).iterdir()
run = RunStore.open(folder.name)
nodes = {"generator": set()}
for path in folder.glob("deployed/*.json"):
    for pod in json.loads(path.read_text()):
        nodes.setdefault(pod["role"], set()).add(pod["node"])
made = [sample for sample in run.samples() if sample.requests]
assert made, [(sample.reason, sample.detail) for sample in run.samples()]
for sample in made:
    lines = run.raw(sample)[0].splitlines()
    nodes["generator"] |= {line.rpartition(" on ")[2] for line in lines if line.startswith("--- runner ")}
    parts = [json.loads(line)["latency"]["count"] for line in lines if line.startswith('{"lab":1,')]
    assert len(parts) == 2 and sum(parts) == sample.requests == run.histogram(sample).total, (parts, sample.requests)
    counted = sample.counters.get("proxy/requests")
    # Beside them it is asked for its count, and by probes; without a proxy nobody counts.
    assert sample.arm == "direct" if counted is None else 0 <= counted - sample.requests <= 30, (counted, sample.requests)
    assert sample.usage["generator"].cpu_s > 0 and sample.generator_core is not None
    print(f"{sample.arm} {sample.point.name}: {parts[0]} + {parts[1]} requests, the proxy counted {counted}; {sample.reason or 'valid'} {sample.detail}")
placed = [node for role in ("generator", "proxy", "backend") for node in nodes[role]]
assert len(placed) == len(set(placed)) == 3, nodes
print(nodes)
PYTHON
}

# bats test_tags=long
@test "two generators share a load, each role on a node of its own, and the proxy counts what they made together" {
  export LAB_KIND_NAME=$LAB_KIND_NAME-2
  timeout 420 just up kind --workers 2
  printf '%s\n' 'title = "Shared"' 'question = "Do two make one load?"' 'blocks = 1' '[[points]]' 'name = "rate"' 'generator = "k6"' \
    'connections = 10' 'rate_rps = 200' 'duration_s = 3' 'generators = 2' 'attempts = 1' '[[points]]' 'name = "closed"' 'generator = "k6"' \
    'connections = 4' 'duration_s = 3' 'generators = 2' 'attempts = 1' >"$sweep"
  limit_s=900 lab bench ingress-nginx --target kind --sweep "$sweep" --json
  ((status < 2)) || fail "$stderr"
  python -c 'import json, sys; assert {row["generators"] for row in json.load(sys.stdin)["rows"]} == {2}' <<<"$output" || fail "$output"
  run shared
  echo "# ${output//$'\n'/$'\n'# }" >&3
  assert_success
  run of_cluster get pods --namespace ingress-lab-client --output name
  assert_output pod/generator
  just down kind
}

# bats test_tags=long
@test "the steps of the workflow 'findings' measure and pack a finding with the images that are here, and are linted" {
  PATH=$PATH:$PWD/.cache/bin go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 -shellcheck "$(command -v shellcheck)" .github/workflows/findings.yml
  export LAB_REFERENCE=$BATS_TEST_TMPDIR/reference FINDINGS=keepalive-pairs
  mkdir "$LAB_REFERENCE" && cp -r data/reference/keepalive-pairs "$LAB_REFERENCE"
  run --separate-stderr timeout 1500 python - <<'PYTHON'
import subprocess, yaml
(job,) = yaml.safe_load(open(".github/workflows/findings.yml"))["jobs"].values()
for step in (step for step in job["steps"] if "run" in step):
    subprocess.run(["bash", "-euo", "pipefail", "-c", step["run"]], check=True)
PYTHON
  assert_success
  run just table "$LAB_REFERENCE/keepalive-pairs/elsewhere-1"
  assert_output --partial "a run from elsewhere, pooled with no other one; keepalive-pairs / this run: target: local / kind"
}

@test "the cluster, used as remote through its kubeconfig, passes the same test and is left empty" {
  KUBECONFIG=$BATS_TEST_TMPDIR/kubeconfig:$PWD/.cache/kind/$LAB_KIND_NAME.kubeconfig
  lab bench keepalive --target remote --context "kind-$LAB_KIND_NAME" --sweep "$sweep"
  measured "direct ingress-nginx ingress-nginx-again keepalive"
  lab down remote --context "kind-$LAB_KIND_NAME"
  assert_success
  run left_over
  assert_output ""
  run of_cluster get crd -l lab/run --output name
  assert_output ""
}

@test "down leaves no container, network, volume or kubeconfig of it" {
  run just down kind </dev/null
  assert_success
  run docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$LAB_KIND_NAME"
  assert_output ""
  [[ -n $(docker ps --all --quiet --filter network=kind) ]] || assert_equal "$(docker network ls --quiet --filter name=^kind$)" ""
  assert [ ! -e ".cache/kind/$LAB_KIND_NAME.kubeconfig" ]
}

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
@test "a short bench ends in a table of the real controllers, every sample read back and every connection counted" {
  local names=(keepalive traefik-ingress-nginx)
  [[ ! -x .cache/bin/contour ]] || names+=(contour+contour-access-log-off)
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  sed -i 's/^connections = .*/connections = 16/' "$BATS_TEST_TMPDIR/tiny.toml"
  limit_s=400 lab bench "${names[@]}" --target apiserver --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1
  ((status < 2)) || fail "$stderr"
  assert_output --partial keepalive
  run python - "$LAB_RUNS" "${names[@]}" <<'PYTHON'
import json, pathlib, sys

(run,) = pathlib.Path(sys.argv[1]).glob("*/run.json")
facts = json.loads(run.read_text())["facts"]
assert facts["target"].startswith("apiserver: the real controllers"), facts
assert "ingress-nginx" in facts["controllers"] and facts["kube-apiserver"].startswith("v1."), facts
assert "traefik 3." in facts["proxies"], facts
assert "contour+contour-access-log-off" not in sys.argv or "contour 1." in facts["proxies"], facts
read = [item for path in run.parent.glob("readback/*.json") for item in json.loads(path.read_text())]
assert read and all(item["ok"] for item in read), read
assert [pod for path in run.parent.glob("deployed/*.json") for pod in json.loads(path.read_text())], run.parent
samples = [json.loads(path.read_text()) for path in run.parent.glob("samples/*/sample.json")]
machine = {"steal", "other-processes", "generator-saturated", "rate-not-achieved", "dropped"}  # a shared runner's
assert {each["reason"] for each in samples} <= {None, *machine}, samples
opened = {each["arm"]: each["counters"].get("proxy/ActiveOpens", 0) / (each["requests"] or 1) for each in samples if not each["pair"]}
assert opened["traefik-ingress-nginx"] > 0.2 and opened["keepalive"] < 0.1, opened  # it opens a connection for most requests
PYTHON
  assert_success
}

# bats test_tags=slow
@test "a knob that is left out of four overlays is noticed by what the running controller says" {
  local knobs=(access-log-off upstream-keepalive-connections-1 max-worker-open-files-1024 luajit-off)
  local overlays=("${knobs[@]/#/ingress-nginx+}")
  limit_s=600 lab sabotage "${overlays[@]}" --target apiserver
  assert_success
  local overlay
  for overlay in "${overlays[@]}"; do
    assert_line --regexp "^${overlay//+/[+]} .* caught "
  done
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

# bats test_tags=slow
@test "a verification names what it cannot realise, compares the real controllers, and finds what is known to differ" {
  cat >"$BATS_TEST_TMPDIR/mine.yaml" <<'YAML'
apiVersion: v1
kind: ConfigMap
metadata: {name: mine}
data: {use-gzip: "true", proxy-body-size: 64k}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  namespace: shop
  annotations: {nginx.ingress.kubernetes.io/limit-rps: "5"}
spec:
  tls: [{hosts: [shop.example], secretName: shop}]
  rules:
    - host: shop.example
      http:
        paths:
          - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
          - {path: /admin, pathType: Exact, backend: {service: {name: admin, port: {name: http}}}}
YAML
  printf 'GET https://shop.example/admin\n  X-Mine: 1\n' >"$BATS_TEST_TMPDIR/requests"
  local verify=(migrate --configmap "$BATS_TEST_TMPDIR/mine.yaml" --to traefik-ingress-nginx --verify)
  limit_s=300 lab "${verify[@]}" --requests "$BATS_TEST_TMPDIR/requests" --blocks 1 --json
  assert_failure 1 # the request of the user's own reaches another Service, which no table can know
  [[ $stderr == *"Ingress shop/web: limit-rps: removed"*"coming up"* ]] || fail "$stderr"
  printf '%s' "$output" >"$BATS_TEST_TMPDIR/verification.json"
  run python - "$BATS_TEST_TMPDIR/verification.json" <<'PYTHON'
import json, pathlib, sys

data = json.loads(pathlib.Path(sys.argv[1]).read_text())
systems = {item["system"]: item["differences"] for item in data["systems"]}
for name in ("ingress-nginx", "traefik-ingress-nginx"):
    assert systems[f"{name} against itself 1"] == [], systems[f"{name} against itself 1"]
found = {item["key"]: item for item in systems["traefik-ingress-nginx"]}
for key in (
    "client header content-encoding: missing",  # gzip
    "client header server: added",
    "client header strict-transport-security: missing",
    "backend header x-request-id: missing",
    "answer @long-request: 414 → 200 of the backend",
    "backend header x-scheme: missing",
):
    assert key in found, sorted(found)
assert found["client header content-encoding: missing"]["known"] == "use-gzip"
shadowed = found["answer @route: 200 of the backend → 200 of the backend, of another Service"]
assert shadowed["consequence"] == "breaks" and "https://shop.example/admin" in shadowed["command"], shadowed
own = found["answer @yours: 200 of the backend → 200 of the backend, of another Service"]
assert own["consequence"] == "breaks" and not own["known"], own
assert all(item["ingress_nginx"]["answer"] and item["successor"]["answer"] for item in found.values())
PYTHON
  assert_success
}

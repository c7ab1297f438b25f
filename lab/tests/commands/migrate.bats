#!/usr/bin/env bats
# `just migrate`: what the successors do with a user's settings.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  mine=$BATS_TEST_TMPDIR/mine.yaml
  printf 'kind: ConfigMap\nmetadata: {name: mine}\ndata:\n  keep-alive: "300"\n  client-max-body-size: 10m\n' >"$mine"
}

@test "by default it plans: it names what is unknown, and writes manifests to take away, which build by themselves" {
  out=$BATS_TEST_TMPDIR/out
  lab migrate "$mine" --to envoy --out "$out"
  assert_success
  assert_line --regexp "^IGNORED TODAY +delete or correct client-max-body-size \(you mean proxy-body-size\)"
  run bash -c "cp -r '$out' '$BATS_TEST_TMPDIR/moved' && kubectl kustomize '$BATS_TEST_TMPDIR/moved/overlays/envoy-yours'"
  assert_success
  assert_line --partial "cluster.circuit_breakers.thresholds.0.max_connections"
  refused "is there already, and not empty" migrate --configmap "$mine" --to envoy --plan --out "$out"
}

@test "files come in any order, from pipes too, and none is needed" {
  printf 'kind: Ingress\nmetadata:\n  name: shop\n  annotations: {nginx.ingress.kubernetes.io/rewrite-target: /}\n' >"$BATS_TEST_TMPDIR/shop.yaml"
  lab migrate "$BATS_TEST_TMPDIR/shop.yaml" "$mine" --to caddy
  assert_success
  assert_line --partial "mine.yaml: 2 settings; 1 Ingress with 1 annotation"
  run bash -c "timeout 60 '${python:-python}' -m lab migrate - --to caddy <'$BATS_TEST_TMPDIR/shop.yaml'"
  assert_line --partial "no ConfigMap, so the defaults count; 1 Ingress with 1 annotation"
  lab migrate
  assert_success
  assert_line --partial "ingress-nginx 1.15.1 → 11 successors"
}

@test "how long a measurement takes is told before it starts, and --plan stops there" {
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  lab migrate "$mine" --to envoy --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1 --measure --plan
  assert_success
  assert_regex "$stderr" 'takes +about '
  nothing_recorded
}

# bats test_tags=slow
@test "ingress-nginx with the file is measured against a successor in one run, which ends in a line about it" {
  tiny_sweep "$BATS_TEST_TMPDIR/tiny.toml"
  limit_s=300
  lab migrate --configmap "$mine" --to envoy --sweep "$BATS_TEST_TMPDIR/tiny.toml" --blocks 1 --measure
  assert_regex "$status" '^[01]$' # a busy machine spoils samples
  assert_regex "$output" 'ingress-nginx\+keep-alive-300'
  assert_regex "$output" 'envoy-yours'
  assert_regex "$output" 'breaks +weaker +the worst'
  run bash -c "grep -l 'circuit_breakers' '$LAB_RUNS'/*/report.html"
  assert_success
}

# ingress: an Ingress that every system can have, and one that none can.
ingress() {
  cat <<'YAML'
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  rules: [{host: shop.example, http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: rpc, annotations: {nginx.ingress.kubernetes.io/backend-protocol: GRPC}}
spec:
  rules: [{host: rpc.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: rpc, port: {number: 80}}}}]}}]
YAML
}

@test "the plan of a verification names what cannot be realised, and starts nothing" {
  ingress >"$BATS_TEST_TMPDIR/ingress.yaml"
  lab migrate --configmap "$mine" --ingress "$BATS_TEST_TMPDIR/ingress.yaml" --to envoy --verify --plan --target local
  assert_success
  assert_output ""
  [[ $stderr == *"Ingress rpc is left out: backend-protocol GRPC"* ]] || fail "$stderr"
  [[ $stderr == *" requests to ingress-nginx and to envoy"* ]] || fail "$stderr"
  [[ $stderr != *"coming up"* ]] || fail "$stderr"
  nothing_recorded
  refused "--learn: is of a verification" migrate --configmap "$mine" --to envoy --learn
  printf 'GET /cart\n' >"$BATS_TEST_TMPDIR/requests"
  refused "requests:1: expected METHOD URL" migrate --configmap "$mine" --to envoy --verify --requests "$BATS_TEST_TMPDIR/requests"
}

# bats test_tags=slow
@test "a verification sends a user's own requests, too, and shows every difference with a command" {
  ingress >"$BATS_TEST_TMPDIR/ingress.yaml"
  printf 'LAB http://shop.example/a/mine\n  X_Mine: 1\n' >"$BATS_TEST_TMPDIR/requests"
  limit_s=300
  lab migrate --configmap "$mine" --ingress "$BATS_TEST_TMPDIR/ingress.yaml" --to envoy --verify --target local --requests "$BATS_TEST_TMPDIR/requests"
  assert_failure 1
  assert_line --regexp '^[0-9]+\. of .*/requests:1$'
  assert_line --partial "curl -i --path-as-is --http1.1 -X LAB -H User-Agent: -H Accept: -H 'X_Mine: 1'"
  assert_line --regexp '^[0-9]+\. client header server: '
  assert_line --partial 'known: server-tokens'
  assert_line --partial 'new: not in the migration table'
  assert_line --regexp '^envoy +local +[0-9]+ '
}

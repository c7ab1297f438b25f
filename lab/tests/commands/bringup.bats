#!/usr/bin/env bats
# Every overlay for real on the local target, one test each: it comes up and every knob reads back from what runs;
# and a sample of the sabotages (`just sabotage` tries them all): a knob that did not take is noticed.
# bats file_tags=slow

bats_require_minimum_version 1.11.0

root=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd)

overlays=("$root"/manifests/overlays/*/)
overlays=("${overlays[@]%/}") && overlays=("${overlays[@]##*/}")

# One lab brings up one overlay after the other, in a second or two each; each test then looks for its own. Those of Envoy Gateway
# are left out where its controller would have to be built, which takes up to twelve minutes beside other tests.
setup_file() {
  cd "$root" || return
  local name names=()
  for name in "${overlays[@]}"; do lacks_controller "$name" || names+=("$name"); done
  timeout 1500 python -m lab sabotage --intact --json "${names[@]}" >"$BATS_FILE_TMPDIR/intact" 2>"$BATS_FILE_TMPDIR/talk" || (($? == 1))
}

lacks_controller() { [[ $1 == envoy-gateway* && ! -x $root/.cache/bin/envoy-gateway ]]; } # OVERLAY

setup() {
  bats_load_library bats-support
  bats_load_library bats-assert
  cd "$root" || return
}

reads_back() { # OVERLAY
  ! lacks_controller "$1" || skip "envoy-gateway is not built here: scripts/bring envoy-gateway"
  run python - "$1" "$BATS_FILE_TMPDIR/intact" <<'PYTHON'
import json, sys
found = [item for line in open(sys.argv[2]) if (item := json.loads(line))["variant"] == sys.argv[1]]
print(*(f"{item['outcome']}: {item['detail']}" for item in found) if found else ["was not brought up"], sep="\n")
PYTHON
  case $output in
    "not measurable: "*) # the lab says what this machine lacks, and so does this test
      assert_output --regexp '^not measurable: [a-z -]+: .+: .+'
      echo "# $1: $output" >&3
      ;;
    *) assert_output --regexp '^holds: [0-9]+ checks$' || fail "$(tail "$BATS_FILE_TMPDIR/talk")" ;;
  esac
}

# bats reads this file again for each of them, and then wants to know of that one alone.
for name in "${overlays[@]}"; do
  [[ ${BATS_TEST_NAME-} == "reads_back "* && $BATS_TEST_NAME != "reads_back $name" ]] ||
    bats_test_function --tags slow --description "overlay $name comes up and every knob reads back" -- reads_back "$name"
done

@test "a knob left out is caught" {
  run --separate-stderr timeout 120 python -m lab sabotage keepalive log-slow-disk backlog gzip-9 --json
  assert_success
  run python - "$output" <<'PYTHON'
import json, sys
found = [json.loads(line) for line in sys.argv[1].splitlines()]
print(*sorted({f"{item['outcome']} {item['sabotage'].partition(':')[0]}".strip() for item in found}), sep="\n")
PYTHON
  assert_output 'caught left out
holds'
}

@test "a sabotage that goes unnoticed ends with 1 and is named" {
  cp -r lab manifests "$BATS_TEST_TMPDIR"
  cd "$BATS_TEST_TMPDIR" || return
  # a read-back of something that the knob has no part in
  sed -i 's/- {kind: nginx.*/- {kind: nginx, name: worker_connections, context: events, value: "16384"}/' \
    manifests/components/keep-alive-requests-10000/kustomization.yaml
  PYTHONPATH=$PWD run --separate-stderr timeout 120 python -m lab sabotage ingress-nginx+keep-alive-requests-10000
  assert_success # the baseline has it: already so
  assert_output --partial 'already so'
  # a read-back that nothing can fail
  sed -i 's/ok = observed == expected/ok = True/' lab/systems/reading.py
  PYTHONPATH=$PWD run --separate-stderr timeout 120 python -m lab sabotage ingress-nginx+keep-alive-requests-10000
  assert_failure 1
  assert_output --partial 'NOT CAUGHT'
  assert_output --partial 'holds whatever it asks for'
}

#!/usr/bin/env bats
# Every overlay, one test each: it builds, holds against Kubernetes' schemas without a network, and differs from
# its baseline by exactly its knobs. A folder in manifests/overlays is all that a further test takes.

bats_require_minimum_version 1.11.0

root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)

setup() {
  bats_load_library bats-support
  bats_load_library bats-assert
  cd "$root" || return
}

# offline CMD...: without a network where the kernel lets us, so that a download is a failure and not a delay.
offline() {
  if unshare -rn true 2>/dev/null; then
    unshare -rn "$@"
  else
    https_proxy=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 "$@"
  fi
}

holds() { # OVERLAY
  run offline scripts/validate "$1"
  assert_success
  assert_line --regexp "^$1: .* Valid: [1-9][0-9]*, Invalid: 0, Errors: 0, Skipped: 0$"

  # What the overlay changes must be what its knobs change one by one on the same baseline, no more and no less.
  run python -c '
import sys
from lab import differences
from lab.variants import load_variant

variant = load_variant(sys.argv[1])
if variant.baseline is None:
    sys.exit(f"a root has no baseline, but knobs {variant.own_knobs}" if variant.own_knobs else 0)
before = load_variant(variant.baseline).manifests
single = {}
for knob in variant.own_knobs:
    alone = differences.changes(before, load_variant(f"{variant.baseline}+{knob}").manifests)
    assert alone, f"{knob} changes nothing"
    assert not (both := set(alone) & set(single)), f"{knob} changes what another one changes: {both}"
    single |= alone
together = differences.changes(before, variant.manifests)
for key in {*together, *single}:
    if together.get(key) != single.get(key):
        sys.exit(f"{key}: the overlay changes {together.get(key)}, its knobs {single.get(key)}")
' "$1"
  assert_success
}

for folder in "$root"/manifests/overlays/*/; do
  name=$(basename "$folder")
  bats_test_function --description "overlay $name builds, validates and differs by exactly its knobs" -- holds "$name"
done

@test "a field that Kubernetes does not know fails validation, and the others are still reported" {
  cp -r scripts lab manifests "$BATS_TEST_TMPDIR"
  ln -s "$root/.cache" "$BATS_TEST_TMPDIR/.cache"
  cd "$BATS_TEST_TMPDIR" || return
  sed -i 's/periodSeconds: 1$/periodSecond: 1/' manifests/base/nginx/deployment.yaml
  run scripts/validate nginx direct
  assert_equal "$status" 1
  assert_output --partial "additional properties 'periodSecond' not allowed"
  assert_line --regexp '^direct: .* Valid: 4, Invalid: 0'
}

@test "a kind without a schema fails validation, and passes with one in manifests/schemas" {
  cp -r scripts lab manifests "$BATS_TEST_TMPDIR"
  ln -s "$root/.cache" "$BATS_TEST_TMPDIR/.cache"
  cd "$BATS_TEST_TMPDIR" || return
  printf 'apiVersion: example.test/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: 1\n' >manifests/base/direct/widget.yaml
  printf '  - widget.yaml\n' >>manifests/base/direct/kustomization.yaml
  run offline scripts/validate direct
  assert_equal "$status" 1
  assert_output --partial 'could not find schema for Widget'
  mkdir -p manifests/schemas # git keeps no empty folder
  printf '{"type": "object", "properties": {"spec": {"properties": {"size": {"type": "%s"}}}}}' integer \
    >manifests/schemas/widget-example-v1.json
  run offline scripts/validate direct
  assert_success
  sed -i 's/integer/string/' manifests/schemas/widget-example-v1.json
  run offline scripts/validate direct
  assert_equal "$status" 1
  assert_output --partial '/spec/size'
}

@test "validate names an unknown overlay and missing tools before it starts" {
  run scripts/validate direct keepalvie
  assert_equal "$status" 2
  assert_output --partial "unknown overlay 'keepalvie'"
  refute_output --partial Summary
  PATH=/usr/bin:/bin run scripts/validate
  assert_equal "$status" 2
  assert_output --partial 'not found on PATH'
  assert_output --partial 'scripts/shell scripts/validate'
}

@test "validate --help is its header" {
  run scripts/validate --help
  assert_success
  assert_line --index 0 --partial 'Validates overlays'
  refute_output --partial pipefail
}

#!/usr/bin/env bats
# Every overlay, one test each: it builds, holds against Kubernetes' schemas without a network, and differs from
# its baseline by exactly its knobs. A folder in manifests/overlays is all that a further test takes. A component that no
# overlay has is validated on one variant that has it.

bats_require_minimum_version 1.11.0

root=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd)

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

# All overlays at once, since most of what they take they have in common; each test then looks for its own.
setup_file() {
  cd "$root" || return
  local names=(manifests/overlays/*/)
  names=("${names[@]%/}")
  offline scripts/validate >"$BATS_FILE_TMPDIR/validated" 2>&1 || true # which one failed, the tests say
  python -m lab.tests.support.overlay_knobs "${names[@]##*/}" >"$BATS_FILE_TMPDIR/knobs"
}

holds() { # OVERLAY
  run grep -m 20 "^$1: " "$BATS_FILE_TMPDIR/validated"
  assert_output --regexp "^$1: Summary: .* Valid: [1-9][0-9]*, Invalid: 0, Errors: 0$"
  run grep "^$1"$'\t' "$BATS_FILE_TMPDIR/knobs"
  assert_output "$1"$'\tok'
}

# bats reads this file again for each of them, and then wants to know of that one alone.
for folder in "$root"/manifests/overlays/*/; do
  folder=${folder%/} && name=${folder##*/}
  [[ ${BATS_TEST_NAME-} == "holds "* && $BATS_TEST_NAME != "holds $name" ]] ||
    bats_test_function --description "overlay $name builds, validates and differs by exactly its knobs" -- holds "$name"
done

@test "each component that no overlay has is valid on a variant that is listed with it" {
  run grep -c '^[^ ]*+[^ ]*: Summary: .* Invalid: 0, Errors: 0$' "$BATS_FILE_TMPDIR/validated"
  ((output > 100)) || fail "$output of them"
  run grep -E '^[^ ]*\+[^ ]*: (does not build|Summary: .*(Invalid|Errors): [1-9])' "$BATS_FILE_TMPDIR/validated"
  assert_output ""
}

@test "a field that Kubernetes does not know fails validation, and the others are still reported" {
  cp -r scripts lab manifests "$BATS_TEST_TMPDIR"
  ln -s "$root/.cache" "$BATS_TEST_TMPDIR/.cache"
  cd "$BATS_TEST_TMPDIR" || return
  sed -i 's/periodSeconds: 1$/periodSecond: 1/' manifests/base/nginx/objects.yaml
  run scripts/validate nginx direct
  assert_failure 1
  assert_output --partial "Additional properties are not allowed ('periodSecond' was unexpected)"
  assert_line --regexp '^direct: .* Valid: 4, Invalid: 0'
}

@test "validate names an unknown variant and missing tools before it starts" {
  run python -m lab maintain validate direct keepalvie
  assert_failure 2
  assert_output --partial "unknown variant 'keepalvie'"
  refute_output --partial Summary
  PATH=/usr/bin:/bin run scripts/validate
  assert_failure 2
  assert_output --partial 'not found on PATH'
  assert_output --partial 'scripts/shell scripts/validate'
}

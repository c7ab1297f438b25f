#!/usr/bin/env bats
# `just report`: one file from the committed runs, or from none.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  limit_s=600
  out=$BATS_TEST_TMPDIR/out
}

# bats test_tags=long
@test "without a run every notebook is executed, and every figure is a gap" {
  LAB_REFERENCE=$BATS_TEST_TMPDIR lab report --output "$out"
  assert_success
  assert_line --index 0 "$out/index.html"
  assert_line --index 1 --regexp '^[0-9]+ claims: .* gaps: '
  [[ $stderr == *notebooks/nds.ipynb*notebooks/okd.ipynb* ]] || fail "$stderr"
  run grep -c 'nothing in data/reference of' "$out/index.html"
  assert_success
}

#!/usr/bin/env bats
# `just report`: one file from the committed runs, or from none; bad input.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  verb=report limit_s=600
  out=$BATS_TEST_TMPDIR/out
}

# bats test_tags=slow
@test "without a run every notebook is executed, and every figure is a gap" {
  LAB_REFERENCE=$BATS_TEST_TMPDIR lab report --output "$out"
  assert_success
  assert_line --index 0 "$out/index.html"
  assert_line --index 1 --regexp '^[0-9]+ claims: .* gaps: '
  [[ $stderr == *notebooks/nds.ipynb*notebooks/okd.ipynb* ]] || fail "$stderr"
  run grep -c 'nothing in data/reference of' "$out/index.html"
  assert_success
}

# bats test_tags=slow
@test "an unknown run is refused with the nearest" {
  refused "--run: quick-keepalife: unknown run" --output "$out" --run quick-keepalife
  [[ ! -e $out ]]
}

# bats test_tags=slow
@test "an output that is a file is refused" {
  touch "$out"
  refused "is no folder" --output "$out"
  refused "cannot be written" --output "$out/below"
}

@test "what is empty is refused, and is not the current folder or the newest run" {
  refused "--output: is empty" --output ""
  refused "--run: is empty" --output "$out" --run ""
  [[ ! -e $out ]]
}

@test "an unknown argument is refused" {
  refused "unrecognized arguments: nds" nds
}

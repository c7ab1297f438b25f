#!/usr/bin/env bats
# `just gate --against`: nothing is measured where no manifest differs; its other answers are in test_answers.py and test_gate.py.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
}

@test "gate --against a ref that changed no rendered manifest says so at once, and passes" {
  git rev-parse --quiet --verify HEAD >/dev/null || skip "not a git checkout"
  git diff --quiet HEAD -- manifests || skip "the manifests of this checkout are changed"
  lab gate --against HEAD keepalive --junit "$BATS_TEST_TMPDIR/gate.xml"
  assert_success
  assert_output "0 regressions: no rendered manifest of keepalive differs from HEAD's: nothing to measure, nothing to do"
  [[ -s $BATS_TEST_TMPDIR/gate.xml ]]
  nothing_recorded
}

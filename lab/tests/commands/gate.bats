#!/usr/bin/env bats
# `just gate`: its exit statuses on the committed run. It measures nothing.
# shellcheck disable=SC2030,SC2031 # `run` sets status and stderr in the very shell of the test that calls it

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  run_folder=data/reference/quick-keepalive
}

# A copy that no test changes.
setup_file() {
  setup
  slower "$BATS_FILE_TMPDIR/slower"
}

# slower FOLDER: a copy of the committed run in which every sample of keepalive used 1.5 times the CPU.
slower() {
  unpacked "$run_folder" "$1"
  python - "$1" <<'PY'
import json, pathlib, sys

for path in pathlib.Path(sys.argv[1]).glob("samples/*/sample.json"):
    told = json.loads(path.read_text())
    if told["arm"] == "keepalive" and "proxy" in told["usage"]:
        told["usage"]["proxy"]["cpu_s"] *= 1.5
        path.write_text(json.dumps(told))
PY
}

@test "gate lets a wide bound through, and refuses with --strict what it cannot tell" {
  lab gate "$run_folder" --max-regression 50% --strict
  assert_success
  assert_output --partial "0 regressions, 0 cannot tell"
  lab gate "$run_folder" --max-regression 1% --strict
  assert_failure 2
  assert_output --partial "refused (--strict)"
}

@test "gate exits 1 with the offending row of a run or of two, and its JUnit says so" {
  lab gate "$BATS_FILE_TMPDIR/slower" --max-regression 10% --again "$run_folder" --junit "$BATS_TEST_TMPDIR/gate.xml"
  assert_failure 1 # so clear a regression needs no second measurement
  assert_output --regexp "REGRESSION: keepalive against ingress-nginx at ceiling: CPU per request: \+5[0-9]\."
  run grep -c "<failure " "$BATS_TEST_TMPDIR/gate.xml"
  assert_output 1
  lab gate "$run_folder:keepalive" "$BATS_FILE_TMPDIR/slower:keepalive" --max-regression 10% --metric cpu_per_request
  assert_failure 1
  assert_output --partial "two runs, unpaired"
  refused "--again: expected as many runs as are gated (1), and others" gate "$run_folder" --max-regression 10% --again "$run_folder"
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

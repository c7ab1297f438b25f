#!/usr/bin/env bats
# `just gate`: its exit statuses on the committed run, what it writes for CI. It measures nothing.
# shellcheck disable=SC2030,SC2031 # `run` sets status and stderr in the very shell of the test that calls it

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  run_folder=data/reference/quick-keepalive
}

# Copies that no test changes.
setup_file() {
  setup
  slower "$BATS_FILE_TMPDIR/slower"
  lacking "$BATS_FILE_TMPDIR/lacking"
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

# lacking FOLDER: a copy of the committed run that keepalive is not in.
lacking() {
  unpacked "$run_folder" "$1"
  python - "$1" <<'PY'
import json, pathlib, shutil, sys

path = pathlib.Path(sys.argv[1]) / "run.json"
run = json.loads(path.read_text())
run["arms"] = [arm for arm in run["arms"] if arm["name"] != "keepalive"]
run["slots"] = [slot for slot in run["slots"] if slot[1] != "keepalive"]
path.write_text(json.dumps(run))
for folder in path.parent.glob("samples/*-keepalive-*"):
    shutil.rmtree(folder)
PY
}

@test "gate lets a wide bound through and names what is nearest to it" {
  lab gate "$run_folder" --max-regression 50% --strict
  assert_success
  assert_output --partial "0 regressions, 0 cannot tell"
  assert_output --partial "nothing to do"
}

@test "gate cannot tell with a tight bound: 0, and says how many blocks would" {
  lab gate "$run_folder" --max-regression 1%
  assert_success
  assert_output --partial "let through, as --strict was not asked for"
  assert_output --regexp "measure with --blocks [0-9]+|too noisy to resolve 1 %"
}

@test "gate cannot tell with a tight bound: 2 with --strict" {
  lab gate "$run_folder" --max-regression 1% --strict
  assert_failure 2
  assert_output --partial "refused (--strict)"
}

@test "gate exits 1 with the offending row, and its JUnit says so" {
  lab gate "$BATS_FILE_TMPDIR/slower" --max-regression 10% --junit "$BATS_TEST_TMPDIR/gate.xml"
  assert_failure 1
  assert_output --regexp "REGRESSION: keepalive against ingress-nginx at ceiling: CPU per request: \+5[0-9]\."
  run grep -c "<failure " "$BATS_TEST_TMPDIR/gate.xml"
  assert_output 1
}

@test "gate --markdown shows the offending row, and exits 1" {
  lab gate "$BATS_FILE_TMPDIR/slower" --max-regression 10% --markdown
  assert_failure 1
  assert_line "### Regression"
  assert_output --regexp '\| ceiling \| keepalive against ingress-nginx \| CPU per request \|.*\*\*REGRESSION\*\*'
}

@test "gate compares the arms of two runs: slower" {
  lab gate "$run_folder:keepalive" "$BATS_FILE_TMPDIR/slower:keepalive" --max-regression 10% --metric cpu_per_request
  assert_failure 1
  assert_output --partial "two runs, unpaired"
}

@test "gate compares the arms of two runs: quicker" {
  lab gate "$BATS_FILE_TMPDIR/slower:keepalive" "$run_folder:keepalive" --max-regression 10% --metric cpu_per_request
  assert_success
}

@test "gate of two machines is refused with the facts that differ" {
  unpacked "$run_folder" "$BATS_TEST_TMPDIR/elsewhere"
  sed -i 's/"cpu": "[^"]*"/"cpu": "Another CPU"/' "$BATS_TEST_TMPDIR/elsewhere/run.json"
  refused "are of two machines: cpu: " gate "$run_folder:keepalive" "$BATS_TEST_TMPDIR/elsewhere:keepalive" --max-regression 50%
  [[ $stderr == *"/ Another CPU"* ]] || fail "$stderr"
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

@test "gate takes a second measurement by --again, of other runs and as many as the first" {
  lab gate "$BATS_FILE_TMPDIR/slower" --max-regression 10% --again "$run_folder"
  assert_failure 1 # so clear a regression needs no second measurement
  refused "--again: expected as many runs as are gated (1), and others" gate "$run_folder" --max-regression 10% --again "$run_folder"
}

# unread ARG...: the command line, and nobody reads what it prints.
unread() {
  run --separate-stderr python - "$@" <<'PY'
import os, subprocess, sys

reader, writer = os.pipe()
os.close(reader)
sys.exit(subprocess.run([sys.executable, "-m", "lab", *sys.argv[1:]], stdout=writer).returncode)
PY
}

# bats test_tags=slow
@test "a reader that has gone changes no verdict, and is no fault" {
  for form in "" --json --markdown; do
    unread gate "$run_folder" --max-regression 50% ${form:+"$form"}
    assert_success
    assert_equal "$stderr" ""
    unread gate "$BATS_FILE_TMPDIR/slower" --max-regression 10% ${form:+"$form"}
    assert_failure 1
    assert_equal "$stderr" ""
  done
  for form in "" --json; do
    unread compare "$run_folder" ${form:+"$form"}
    assert_success
    assert_equal "$stderr" ""
  done
}

@test "gate exits 1 with a candidate that does not work" {
  unpacked "$run_folder" "$BATS_TEST_TMPDIR/candidate"
  python - "$BATS_TEST_TMPDIR/candidate" <<'PY'
import json, pathlib, sys

for path in pathlib.Path(sys.argv[1]).glob("samples/*-keepalive-*/sample.json"):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"verdict": "invalid", "reason": "non-2xx"}))
PY
  lab gate "$run_folder" "$BATS_TEST_TMPDIR/candidate" --max-regression 50%
  assert_failure 1
  assert_output --partial "REGRESSION: keepalive at ceiling: CPU per request: no valid block of the candidate: non-2xx 6; the base has 6 blocks"
}

@test "gate says which arm of the base a run lacks" {
  lab gate "$run_folder" "$BATS_FILE_TMPDIR/lacking" --max-regression 50%
  assert_success
  assert_output --regexp "cannot tell: not in .*: arm keepalive"
}

@test "gate with --strict refuses a run that lacks an arm of the base" {
  lab gate "$run_folder" "$BATS_FILE_TMPDIR/lacking" --max-regression 50% --strict
  assert_failure 2
  assert_output --partial "refused (--strict)"
}

@test "gate --json has the verdict and the exit status" {
  lab gate "$run_folder" --max-regression 1% --strict --json
  assert_failure 2
  run python -c 'import json, sys; told = json.loads(sys.argv[1]); print(told["verdict"], told["exit_status"])' "$output"
  assert_output "cannot-tell 2"
}

# unwritten [FORM]: an answer that finds no room.
unwritten() {
  [[ -e /dev/full ]] || skip "no /dev/full here"
  run --separate-stderr bash -c "python -m lab gate $run_folder --max-regression 50% $* >/dev/full"
  assert_failure 2
  [[ $stderr == *"cannot be written"* ]] || fail "$stderr"
  [[ $stderr != *defect* ]] || fail "$stderr"
}

@test "an answer that cannot be written is no regression" {
  unwritten
}

# bats test_tags=slow
@test "an answer that cannot be written is none in any form" {
  unwritten --json
  unwritten --markdown
}

#!/usr/bin/env bats
# Adding a knob takes one folder: the worked example of CONTRIBUTING.md, in a checkout of its own, is listed, measured and read back.
# bats file_tags=slow

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  own_checkout README.md .github justfile lab manifests scripts
  mkdir data
  cp -r "$root"/data/{levels,pairs,promises,published,trials} data # what was measured has no part in it
  export LAB_RUNS="$BATS_TEST_TMPDIR/runs" COLUMNS=160
}

# example FOLDER: its first YAML block, written to the path that stands before it.
example() {
  python - .github/CONTRIBUTING.md <<'PYTHON'
import pathlib, re, sys
path, text = re.search(r"`(manifests/components/[^`]+)`:\n\n```yaml\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.S).groups()
file = pathlib.Path(path)
file.parent.mkdir()
file.write_text(text)
print(file.parent.name)
PYTHON
}

@test "the example of a knob in CONTRIBUTING.md is all it takes: list has it, bench measures it, and sabotaged it is caught" {
  knob=$(example)
  run git -C "$root" ls-files --others --cached -- "manifests/components/$knob"
  assert_output "" # it is an example, and not in the lab
  run python -m lab list "$knob"
  assert_line --regexp "^ *$knob +"
  run --separate-stderr timeout 300 python -m lab bench "ingress-nginx+$knob" --sweep smoke --blocks 1
  ((status < 2)) || fail "$stderr"
  assert_output --partial "ingress-nginx+$knob"
  run python - "$LAB_RUNS" "$knob" <<'PYTHON'
import json, pathlib, sys
runs = pathlib.Path(sys.argv[1])
records = [json.loads(path.read_text()) for path in runs.glob("*/samples/*/sample.json")]
ours = [record for record in records if record["arm"] == f"ingress-nginx+{sys.argv[2]}"]
print(*sorted({record["point"]["name"] for record in ours}))
# a shared machine may be too noisy for a valid sample, but nothing of ours may be at fault
noise = (None, "steal", "other-processes", "clock-step", "rate-not-achieved", "dropped", "generator-saturated")
print(*sorted({record["reason"] for record in ours if record["reason"] not in noise}), "no other fault")
PYTHON
  assert_output $'ceiling rate-500\nno other fault'
  run cat "$LAB_RUNS"/*/readback/*"$knob"*.json
  assert_output --partial '"ok": true'
  refute_output --partial '"ok": false'
  run --separate-stderr timeout 120 python -m lab sabotage "ingress-nginx+$knob"
  assert_success
  assert_output --partial 'left out'
}

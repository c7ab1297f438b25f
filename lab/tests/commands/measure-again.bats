#!/usr/bin/env bats
# scripts/measure-again: what it lists, that it can be stopped and goes on, and what it commits; and scripts/measure-findings: what it
# measures where. `just` is a stub; nothing is measured.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  own_checkout scripts
  export LAB_RUNS=$checkout/data/runs BOOT_ID=$BATS_TEST_TMPDIR/boot
  mkdir -p data/again data/reference
  echo boot-one >"$BOOT_ID"
  {
    printf 'name\tinto\thow\tseed\tminutes\tcommand\twhy\n'
    printf 'waiting\tport-wait\tnew\t7\t90\tbench ports --sweep port-wait\tit fell\n'
    printf 'again\tport-wait\tboot\t8\t30\tbench ports --sweep port-wait\tone more boot\n'
  } >data/again/plan.tsv
  printf 'data/runs/\n' >.gitignore
  git init -q . && git config user.email a@example.org && git config user.name a && git add -A && git commit -qm begin
  # A bench makes its run at once; while `slow` is there it is not finished and waits to be ended. A resumed one is finished.
  stub just '
    case $1 in
      bench | study)
        if [[ $2 == --resume ]]; then
          touch "$LAB_RUNS/$3/finished"
        else
          mkdir -p "$LAB_RUNS/run-1"
          printf "{\"seed\": %s, \"facts\": {\"boot_id\": \"%s\"}}\n" "${@: -1}" "$(cat "$BOOT_ID")" >"$LAB_RUNS/run-1/run.json"
          if [[ -e slow ]]; then trap "exit 1" TERM; touch begun; while :; do sleep 0.05; done; fi
          touch "$LAB_RUNS/run-1/finished"
        fi ;;
      maintain)
        [[ -e $3/finished ]] || { echo "not finished" >&2; exit 2; }
        into=data/reference/$5
        [[ ! -e $into/run.json || ${6-} == --replace ]] || into=$into/boot-2
        mkdir -p "$into" && cp "$3/run.json" "$into" ;;
      table) printf "ports: rate at wait −30 %%: do not apply it\n  yaml: 1\n\ntable\n" ;;
    esac'
}

@test "the plan says what is to do, how long it takes, why, and what waits for another boot" {
  run -0 scripts/measure-again --plan
  assert_line --regexp '^waiting +to do +90 min  just bench ports --sweep port-wait --seed 7$'
  assert_line --regexp '^again +waits for its first boot +30 min'
  assert_output --partial "it fell"
  assert_line "left on this boot: about 1 h 30 min"
  run -0 cat "$calls"
  refute_output
}

@test "each run is packed and committed with its figures, and the next boot waits until there is one" {
  run -0 scripts/measure-again
  assert_output --partial "measured: what can be on this boot"
  run -0 git log -1 --format=%B
  assert_line "Measure waiting"
  assert_line "just bench ports --sweep port-wait --seed 7"
  assert_line "ports: rate at wait −30 %: do not apply it"
  refute_output --partial "yaml"
  run -0 scripts/measure-again --plan
  assert_line --regexp '^waiting +done'
  assert_line --regexp '^again +waits for a new boot'
  echo boot-two >"$BOOT_ID"
  run -0 scripts/measure-again
  run -0 git log --format=%s
  assert_output "Measure again
Measure waiting
begin"
  run -0 git status --short
  refute_output
}

@test "stopped by a signal it ends the bench, keeps its run, and goes on with it" {
  touch slow
  scripts/measure-again 2>err 3>&- &
  local pid=$! deadline=$((SECONDS + 20)) status=0
  until [[ -e begun ]]; do
    ((SECONDS < deadline)) || fail "the bench did not begin within 20 s: $(cat err)"
    sleep 0.05
  done
  kill -TERM "$pid"
  wait_for_end "the script" "$pid" || status=$?
  assert_equal "$status" 1
  run -0 cat err
  assert_output --partial "stopped; every complete sample is kept"
  run -0 git log --format=%s
  assert_output begin
  rm slow
  run -0 scripts/measure-again
  run -0 cat "$calls"
  assert_line "just bench --resume run-1"
  run -0 git log -1 --format=%s
  assert_output "Measure waiting"
}

@test "findings are measured on kind, or on the machine itself, and packed; one without a reference is named" {
  {
    printf 'name\tinto\thow\tseed\tminutes\tcommand\twhy\n'
    printf 'log-kind-boot-2\tlog-kind\tboot\t1\t9\tbench log-off --sweep knobs --target kind --blocks 6\tw\n'
    printf 'slow-link-boot-2\tslow-link\tboot\t2\t9\tbench gzip --sweep slow-link --blocks 6\tw\n'
    printf 'unknown-boot-2\tunknown\tboot\t3\t9\tbench nds\tw\n'
  } >data/again/plan.tsv
  local name
  for name in log-kind slow-link; do mkdir "data/reference/$name" && echo '{}' >"data/reference/$name/run.json"; done
  mv "$stubs/just" "$stubs/just-that-measures"
  stub just '[[ $* != *gzip*kind* ]] || { echo "gzip: kind shapes no link" >&2; exit 2; }; exec just-that-measures "$@"'
  run --separate-stderr -1 scripts/measure-findings
  assert_equal "$(grep -c "kind shapes no link" <<<"$stderr")" 1
  [[ $stderr == *"unknown: is not measured yet"*"not measured: unknown"* ]] || fail "$stderr"
  run -0 cat "$calls"
  assert_line "just bench log-off --sweep knobs --blocks 6 --target kind"
  assert_line "just bench gzip --sweep slow-link --blocks 6"
  assert_line --regexp '^just maintain pack /.*/run-1 --into slow-link$'
  [[ -e data/reference/log-kind/boot-2/run.json ]] || fail "it was not packed"
  run --separate-stderr -2 scripts/measure-findings kill-nds
  [[ $stderr == *"kill-nds: no finding rests on it; there are log-kind slow-link unknown" ]] || fail "$stderr"
}

# shellcheck shell=bash disable=SC2154 # bats sets status and stderr
# What bats files of the lab's verbs share; each sources this in its setup.

bats_load_library bats-support
bats_load_library bats-assert
# shellcheck source=lab/tests/commands/common.bash
source "$BATS_TEST_DIRNAME/common.bash"
cd "$root" || return
export LAB_RUNS="$BATS_TEST_TMPDIR/runs" COLUMNS=160

# lab ARG...: the command line, with stdout in $output and stderr in $stderr.
lab() {
  run --separate-stderr timeout "${limit_s:-120}" "${python:-python}" -m lab "$@"
}

# refused TEXT ARG...: the command ($verb, if set, with ARG) ends with 2 and says TEXT on stderr, without a traceback; nothing is
# printed or recorded.
refused() {
  local text=$1 before
  before=$(recordings)
  shift
  lab ${verb:+"$verb"} "$@"
  assert_failure 2
  assert_output ""
  [[ $stderr == *"$text"* ]] || fail "expected '$text' in: $stderr"
  [[ $stderr != *Traceback* ]] || fail "$stderr"
  assert_equal "$(recordings)" "$before"
}

# unwrapped TEXT: it with every line break and indentation as one space, as the lab breaks lines at 110 columns.
unwrapped() {
  tr -s ' \n' ' ' <<<"$1"
}

nothing_recorded() {
  assert_equal "$(recordings)" ""
}

recordings() {
  [[ ! -e $LAB_RUNS ]] || find "$LAB_RUNS" -type f
}

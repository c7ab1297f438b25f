#!/usr/bin/env bash
# Runs two load generators interleaved, one of them stopped at any time, until both have ended.
#
# Usage: slices.bash wait FILE CMD…             writes its process group to FILE, waits, and becomes CMD once it may run
#        slices.bash turns LENGTH_US FIRST SECOND   the generators by their files; FIRST runs first
#
# `turns` prints a line at each change: microseconds since the epoch, and which one runs from now on (0, 1; - none). It stops
# whole process groups, which `wait` must lead: never the first process of a namespace, which a signal from inside would not reach.
set -euo pipefail

readonly step_us=20000

fail() {
  printf 'slices: %s\n' "$1" >&2
  exit 1
}

now_us() {
  us=${EPOCHREALTIME/[.,]/}
}

pause_us() { # US; without a process of its own for every slice
  local wait
  (($1 > 0)) || return 0
  printf -v wait '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000))
  read -rt "$wait" -u "$never" || true
}

signal() { # SIGNAL WHICH: false once it has ended
  kill "-$1" -- "-${groups[$2]}" 2>/dev/null
}

say() {
  now_us
  printf '%s %s\n' "$us" "$1"
}

until_due() { # WHICH DUE_US: prints `-` when it ends before
  local ended=
  now_us
  while ((us < $2)); do
    if [[ ! $ended ]] && ! signal 0 "$1"; then
      say -
      ended=1
    fi
    pause_us $(($2 - us < step_us ? $2 - us : step_us))
    now_us
  done
}

wait_for() { # FILE: sets `group`
  local tries
  for ((tries = 0; tries < 1000; tries++)); do
    if [[ -s $1 ]]; then
      read -r group <"$1"
      ((group > 1)) || fail "$1: process group $group cannot be stopped"
      return
    fi
    pause_us 10000
  done
  fail "$1: no generator within 10 s"
}

turns() { # LENGTH_US FILE FILE
  local length_us=$1 running=0 due us group
  groups=()
  # Of labs that were killed; ours are of this minute.
  find "${2%/*}" -maxdepth 1 -type f -user "$(id -u)" -name 'lab-*-[01]*' -mmin +60 -delete 2>/dev/null || true # or somebody else's sweep was first
  for file in "$2" "$3"; do
    wait_for "$file"
    groups+=("$group")
  done
  for running in 1 0; do
    signal STOP "$running" || fail 'a generator ended before it began'
  done
  : >"$2.go"
  : >"$3.go"
  now_us
  due=$us
  while signal CONT "$running"; do
    say "$running"
    due=$((due + length_us))
    until_due "$running" "$due"
    signal STOP "$running" || break
    running=$((1 - running))
  done
  running=$((1 - running)) # the other one, for what it has left
  if signal CONT "$running"; then
    say "$running"
    while signal 0 "$running"; do pause_us $step_us; done
  fi
  say -
  rm -f "$2" "$2.go" "$3" "$3.go"
}

exec {never}<> <(:) # a pipe from which nothing ever comes
case ${1-} in
  wait)
    printf '%s\n' $$ >"$2.new"
    mv "$2.new" "$2"
    until [[ -e $2.go ]]; do pause_us 1000; done
    exec {never}<&-
    exec "${@:3}"
    ;;
  turns)
    ((BASH_VERSINFO[0] >= 5)) || fail "bash 5 is needed, this is $BASH_VERSION"
    turns "${@:2}"
    ;;
  *) fail 'wait or turns' ;;
esac

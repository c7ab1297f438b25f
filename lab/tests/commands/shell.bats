#!/usr/bin/env bats
# scripts/shell: what it promises to a user, on a checkout whose tools are there and on one that has nothing.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  bare=$checkout # one without tools
  mkdir -p "$bare" "$stubs"
  export HOME=$BATS_TEST_TMPDIR LAB_TOOLS=debian
}

bare_checkout() {
  cp -r "$root"/{scripts,flake.nix,flake.lock,pyproject.toml,uv.lock} "$bare"
}

needs_tools() {
  [[ -e $root/.cache/ready ]] || skip "these tools did not come from scripts/setup-debian"
}

@test "--help prints the header and nothing else, and what is unknown is refused with what to do" {
  run --separate-stderr "$root/scripts/shell" --help
  assert_success
  assert_line --index 0 "The lab's tools on any machine: runs CMD with them, in the directory you are in."
  refute_output --partial 'set -euo'
  run "$root/scripts/shell" --frobnicate true
  assert_failure 2
  assert_output --partial "--frobnicate: unknown option; see scripts/shell --help"
  run "$root/scripts/shell" --with wrk3 true
  assert_failure 2
  assert_output --partial "--with wrk3: unknown; only oha is built on request"
}

@test "the command gets its arguments as they were, in the directory it was called from, and one that does not exist is refused" {
  needs_tools
  cd "$BATS_TEST_TMPDIR"
  run "$root/scripts/shell" bash -c 'pwd; printf "<%s>\n" "$@"; exit 7' _ 'a b' '' '*' --help
  assert_failure 7
  assert_output "$BATS_TEST_TMPDIR
<a b>
<>
<*>
<--help>"
  run "$root/scripts/shell" no-such-command
  assert_failure 2
  assert_output "scripts/shell: no-such-command: no such command here"
}

@test "what only some commands want is brought when they want it: what is on PATH will do, and else it is made once" {
  bare_checkout
  stub kind true
  PATH=$stubs:/usr/bin:/bin run "$bare/scripts/bring" kind
  assert_success
  assert_output ""
  [[ ! -e $bare/.cache ]]
  stub go 'echo v1.2.3; [[ $1 != build ]] || while (($#)); do [[ $1 != -o ]] || printf "#!/bin/sh\n" >"$2"; shift; done'
  PATH=$stubs:/usr/bin:/bin run "$bare/scripts/bring" shfmt
  assert_success
  assert_line --partial "✓ shfmt"
  [[ -e $bare/.cache/bin/shfmt ]]
  PATH=$stubs:/usr/bin:/bin run "$bare/scripts/bring" shfmt
  assert_output ""
  run "$bare/scripts/bring" frobnicate
  assert_failure 2
  assert_output --partial "frobnicate: unknown"
}

@test "missing packages are named when neither root nor sudo can install them" {
  bare_checkout
  local program
  for program in bash cat cut dirname env flock git grep head id mkdir mv ps readlink rm sed setpriv sha256sum sort tail touch tr uname ip; do
    ln -s "$(command -v "$program")" "$stubs/$program"
  done
  local as=()
  if ((EUID == 0)); then
    chmod -R a+rwX "$BATS_TEST_TMPDIR"
    chmod a+x "$BATS_RUN_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    "${as[@]}" test -x "$bare/scripts" || skip "$bare cannot be read by others"
  fi
  run env PATH="$stubs" "$(command -v setpriv)" "${as[@]:1}" "$bare/scripts/shell" true
  assert_failure 2
  assert_output --partial "these Debian packages are needed and missing:"
  assert_output --regexp "apt-get install --no-install-recommends .*hey.* wrk"
}

@test "macOS is told what to do" {
  bare_checkout
  stub uname 'echo Darwin'
  PATH=$stubs:$PATH run "$bare/scripts/shell" true
  assert_failure 2
  assert_output --partial "Darwin"
  assert_output --partial "install nix"
  assert_output --partial "--target kind"
}

# bats test_tags=slow
@test "a broken download says which step failed, why, and what to do" {
  bare_checkout
  PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_FIND_LINKS='' PIP_RETRIES=0 PIP_TIMEOUT=1 run "$bare/scripts/shell" true
  assert_failure 2
  assert_output --partial "✗ the Python installer"
  assert_output --partial "127.0.0.1"
  assert_output --partial "$bare/.cache/log/uv.log"
  assert_output --partial "check PIP_INDEX_URL"
  [[ ! -e $bare/.cache/ready ]]
}

@test "a second first start waits for the first and then uses what it made" {
  bare_checkout
  mkdir "$bare/.cache"
  # Files, no FIFO: who opens one waits for the other end, which may have died, for ever.
  root=$bare bash -euc 'source "$root/scripts/tools/env.bash"
    exec 9>"$cache/lock"; flock -w 60 9; echo held >"$cache/held"
    for ((i = 0; i < 1200; i++)); do [[ ! -e $cache/go ]] || break; sleep 0.05; done
    fingerprint >"$cache/ready"' 3>&- &
  local first=$!
  wait_until "the first start to hold the lock" test -e "$bare/.cache/held"
  "$bare/scripts/shell" echo went on >"$BATS_TEST_TMPDIR/output" 2>&1 3>&- &
  local second=$!
  wait_until "the second start to say that it waits" grep -q waiting "$BATS_TEST_TMPDIR/output"
  touch "$bare/.cache/go"
  wait_for_end "the first start" "$first"
  wait_for_end "the second start" "$second"
  run cat "$BATS_TEST_TMPDIR/output"
  assert_line "another scripts/ command is setting up this checkout; waiting for it"
  assert_line "went on"
}

@test "where nix works, it brings the tools and gets the command" {
  bare_checkout
  stub nix 'printf "nix <%s>\n" "$@"'
  LAB_TOOLS='' PATH=$stubs:$PATH run --separate-stderr "$bare/scripts/shell" just bench 'a b'
  assert_success
  assert_line "nix <nix-command flakes>"
  assert_line "nix <$bare>"
  assert_line "nix <a b>"
}

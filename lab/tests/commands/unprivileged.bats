#!/usr/bin/env bats
# A plain user: what can work works, and everything else says so before anything starts. As root a user of no rights is taken for it.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
  as=()
  if ((EUID == 0)); then
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    mkdir -p "$LAB_RUNS"
    chmod -R a+rwX "$BATS_TEST_TMPDIR"
    chmod a+x "$BATS_RUN_TMPDIR" "$BATS_TEST_TMPDIR/.." || true # bats' own folders may be closed to others
    "${as[@]}" test -r "$root/lab/__main__.py" || skip "$root cannot be read by others"
  fi
  export HOME=$BATS_TEST_TMPDIR
  unshare --user true 2>/dev/null || forbidden=1
}

plain() { # ARG…: the command line as a plain user, with stdout in $output and stderr in $stderr
  run --separate-stderr "${as[@]}" timeout 120 python -m lab "$@"
  [[ $stderr != *Traceback* ]] || fail "$stderr"
}

# beforehand TEXT VARIANT…: is planned, or ends with 2 and TEXT; nothing is recorded either way.
beforehand() {
  local text=$1
  shift
  plain bench "$@" --plan
  [[ $status == 0 || ($status == 2 && $stderr =~ $text) ]] || fail "$status: $stderr"
  nothing_recorded
}

# limited: whether a plain user's limits of CPU hold here, as the lab itself tries it.
limited() {
  "${as[@]}" python -c 'import sys; from lab.targets.local.sandbox import cgroups; sys.exit(bool(cgroups.unheld({"cpu": "100m"})))'
}

# bats test_tags=long
@test "whatever variant a plain user names is planned, or the lab says beforehand why it cannot be shown" {
  [[ -z ${forbidden-} ]] || skip "user namespaces are forbidden here"
  beforehand - ingress-nginx
  assert_success
  local variant
  for variant in packet-steering open-files aws-a1-node log-slow-disk nds-replicas-4 kernel; do
    beforehand 'not measurable here|cannot be made there' "$variant"
  done
  beforehand 'not measurable here: limits: cpu 200m: .*systemd-run' backend-200m
  if limited; then assert_success; else assert_failure 2; fi
  beforehand 'not measurable here: CPU limits: the proxy cannot be given less CPU here' okd --sweep probes-quick
  if limited; then assert_success; else assert_failure 2; fi
}

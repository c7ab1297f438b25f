#!/usr/bin/env bats
# just doctor: whether each target can run here, and what is missing; failing only for what the default target needs.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  mkdir "$stubs"
  export HOME=$BATS_TEST_TMPDIR KUBECONFIG=$BATS_TEST_TMPDIR/kubeconfig LAB_RUNS=$BATS_TEST_TMPDIR/runs
  export PATH=$stubs:$PATH PYTHONPATH=$root
}

host_state() {
  ip -o link
  sysctl net.core.somaxconn net.ipv4.ip_local_port_range net.ipv4.tcp_max_syn_backlog
  find /run/netns -mindepth 1 2>&1 | sort # its absence is a state too
}

@test "what is missing is named with the targets that need it and what to do, and the host is the same before and after" {
  stub nginx 'echo "nginx version: nginx/1.10.3" >&2'
  stub docker 'echo "Cannot connect to the Docker daemon" >&2; exit 1'
  stub unshare '[[ $1 != --version ]] || { echo "unshare from util-linux 2.38.1"; exit; }
    echo "unshare: unshare failed: Operation not permitted" >&2; exit 1'
  local before
  before=$(host_state)
  run python -m lab doctor
  assert_failure 2
  assert_line --index 0 --regexp '^--target local: not ready, for want of .*nginx'
  assert_line --regexp '^--target kind: not ready, for want of .*Docker'
  refute_line --regexp '^--target local: .*Docker'
  local page=${output//$'\n    '/ }
  assert_regex "$page" 'ok: disk for data/runs \(for local, apiserver\): [0-9.]+ GB free in [^ ]+, 2 GB needed for runs'
  assert_regex "$page" 'missing: nginx \(for local, apiserver\): 1\.10\.3, at least 1\.19\.10 [^–]*– apt-get install nginx'
  assert_regex "$page" 'missing: Docker \(for kind\): Cannot connect to the Docker daemon – '
  refute_line --regexp '^ok: Python'
  ((${#lines[@]} <= 25)) || fail "${#lines[@]} lines"
  run python -m lab doctor --all
  assert_failure 2
  assert_line --regexp '^ok: Python \(for all targets\): 3\.'
  assert_line --regexp '^missing: namespaces \(for local, apiserver\): unshare: unshare failed: Operation not permitted.*--target kind'
  assert_line --regexp '^missing: sysctls of a namespace \(for local, apiserver\): not tried – the above first'
  assert_equal "$(host_state)" "$before"
}

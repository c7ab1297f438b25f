#!/usr/bin/env bats
# just up|down kind where it cannot work: nothing is started, or nothing is left, and the message says what to do.
# docker, kind and kubectl are stubs; kind.bats has the real ones.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  own_checkout lab manifests justfile
  state=$BATS_TEST_TMPDIR/state
  mkdir "$state"
  export STATE=$state
  unset LAB_IMAGES LAB_KIND_NAME
  stub docker "$DOCKER"
  stub kind "$KIND"
  stub kubectl 'echo "Client Version: v1.34.1"'
}

DOCKER='case "$*" in
info*) echo "{\"ServerVersion\": \"27.0\", \"DockerRootDir\": \"${DATA:-$STATE}\"}" ;;
ps*--quiet*) ;;
ps*.Names*) [[ ! -e $STATE/nodes ]] || cat "$STATE/nodes" ;;
ps*) ;;
"network rm kind") ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac'
KIND='case "$*" in
version) echo "kind v0.32.0 go1.27 linux/amd64" ;;
create*) cat >"$STATE/config"; echo "ingress-lab-control-plane running" >"$STATE/nodes"; cat "$STATE/says" >&2; exit 1 ;;
delete*) rm -f "$STATE/nodes" ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac'

refused() { # TEXT ARG…: `up kind ARG…` ends with 2, says TEXT, and has started nothing
  local text=$1
  shift
  run python -m lab up kind "$@"
  assert_failure 2
  assert_output --partial "$text"
  refute_output --partial Traceback
  run grep -c '^kind create' "$calls"
  assert_output 0
}

@test "no Docker engine, none that this user may use, no docker and too little disk are messages, and nothing is started" {
  stub docker 'echo "{\"ServerErrors\": [\"Cannot connect to the Docker daemon at tcp://127.0.0.1:9. Is the docker daemon running?\"]}"'
  refused "Docker: Cannot connect to the Docker daemon at tcp://127.0.0.1:9"
  run python -m lab down kind
  assert_failure 2
  assert_line --partial "systemctl start docker"
  stub docker 'echo "{\"ServerErrors\": [\"permission denied while trying to connect to the Docker daemon socket\"]}"'
  refused "usermod -aG docker"
  stub docker "$DOCKER"
  DATA=/proc refused "/proc: 0.0 GB free where Docker keeps its data, a cluster takes up to 6"
  rm "$stubs/docker"
  PATH=$stubs run "$(command -v python)" -m lab up kind
  assert_failure 2
  assert_line --partial "Docker: docker: not on PATH"
}

@test "a cluster that cannot be created leaves nothing, and says why in kind's words and what to do" {
  printf '%s\n' "Creating cluster" "ERROR: failed to create cluster: could not find a log line" "Stack: kubeadm: no space left" >"$state/says"
  run python -m lab up kind
  assert_failure 2
  assert_line --partial "kind cluster ingress-lab: failed to create cluster: could not find a log line: Stack: kubeadm: no space left"
  assert_line --partial "nothing is left of it"
  run cat "$calls"
  assert_line --partial "kind delete cluster --name ingress-lab"
  assert [ ! -e "$state/nodes" ]
  run cat "$state/config"
  assert_output --partial "kubeProxyMode: iptables"
  assert_output --partial "image: docker.io/kindest/node:v1.34"
  echo 'ERROR: failed to create cluster: failed to pull image "docker.io/kindest/node:v1.34.0": command failed' >"$state/says"
  run python -m lab up kind
  assert_failure 2
  assert_line --partial "LAB_IMAGES=<file> with a line \`kind-node: …\`"
}

@test "LAB_KIND_NAME and LAB_IMAGES are what the cluster is made by, and the kubeconfig is the checkout's own" {
  echo "kind-node: mirror.test:5000/node:1" >images.yaml
  : >"$state/says"
  LAB_KIND_NAME=mine LAB_IMAGES=images.yaml run python -m lab up kind
  assert_failure 2
  run cat "$calls"
  assert_line --partial "kind create cluster --name mine --kubeconfig $checkout/.cache/kind/mine.kubeconfig"
  run cat "$state/config"
  assert_line "name: mine"
  assert_output --partial "image: mirror.test:5000/node:1"
  assert [ ! -e "$HOME/.kube" ]
  assert [ ! -e "$KUBECONFIG" ]
}

@test "a cluster that cannot be removed says how to, by hand" {
  echo "ingress-lab-control-plane running" >"$state/nodes"
  stub kind 'echo "ERROR: failed to delete cluster" >&2; exit 1'
  run python -m lab down kind
  assert_failure 2
  assert_line --partial "kind cluster ingress-lab: not removed: ERROR: failed to delete cluster"
  assert_line --partial "docker rm --force --volumes ingress-lab-control-plane"
}

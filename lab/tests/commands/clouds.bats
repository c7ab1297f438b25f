#!/usr/bin/env bats
# just up|down doks, eks-a1: what is shown, asked and called, with stubs of doctl and eksctl that keep a little cloud;
# and of up|down remote what needs no cluster.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  own_checkout lab
  export CLOUD=$BATS_TEST_TMPDIR/cloud TAG=ingress-lab STATE=running
  mkdir "$CLOUD"
  stub doctl "$DOCTL"
  stub eksctl "$EKSCTL"
}

DOCTL='case "$*" in
*list-associated-resources*) echo "Load Balancers: shop" ;;
*"cluster list"*) echo "others"; [[ ! -e $CLOUD/doks ]] || echo "ingress-lab-doks   " ;;
*"get ingress-lab-doks --format Tags"*) echo "k8s,$TAG" ;;
*"get ingress-lab-doks --format Status"*) echo "$STATE" ;;
*"cluster create"*) touch "$CLOUD/doks" ;;
*"kubeconfig show"*) echo "current-context: do-nyc1-ingress-lab-doks" ;;
*"cluster delete"*) rm "$CLOUD/doks" ;;
*) echo "Error: unexpected: $*" >&2; exit 1 ;;
esac'
EKSCTL='case "$*" in
*"get cluster --name"*) echo "[{\"Name\": \"ingress-lab-eks-a1\", \"Tags\": {\"$TAG\": \"eks-a1\"}}]" ;;
*"get cluster"*) [[ ! -e $CLOUD/eks-a1 ]] && echo "[]" || echo "[{\"Name\": \"ingress-lab-eks-a1\"}]" ;;
*"create cluster"*) touch "$CLOUD/eks-a1" ;;
*write-kubeconfig*) echo "current-context: me@ingress-lab-eks-a1" >"${!#}" ;;
*"delete cluster"*) rm "$CLOUD/eks-a1" ;;
*) echo "Error: unexpected: $*" >&2; exit 1 ;;
esac'

# cloud CLUSTER VERB [--yes]: without a terminal, with stdout in $output and stderr in $stderr.
cloud() {
  run --separate-stderr timeout 20 "lab/targets/provision/$1" "${@:2}" </dev/null
}

says() {
  [[ $stderr == *"$1"* ]] || fail "expected '$1' in: $stderr"
}

called() {
  grep -qF -- "$1" "$calls" || fail "expected '$1' among: $(cat "$calls")"
}

# nothing_changed: no program was called that creates, deletes or writes.
nothing_changed() {
  ! grep -E ' (create|delete|write-kubeconfig) ?' "$calls" || fail "$(cat "$calls")"
}

# bats test_tags=slow
@test "just up and down hand on to the script, with its exit status and its question on the terminal" {
  run python -m lab up doks </dev/null
  assert_failure 2
  assert_output --partial "just up doks: stdin is no terminal to ask on; nothing was changed"
  run script -qec 'python -m lab up doks' /dev/null <<<'no'
  assert_failure 2
  assert_output --partial "the answer was not yes; nothing was changed"
  nothing_changed
  run script -qec 'python -m lab up doks' /dev/null <<<'yes'
  assert_success
  called "doctl kubernetes cluster create ingress-lab-doks"
  run python -m lab down doks --yes </dev/null
  assert_success
  called "doctl kubernetes cluster delete ingress-lab-doks"
}

@test "up without a yes prints what it would run and creates nothing; with it the published shape, and the user's kubeconfig stays" {
  cloud doks up
  assert_failure 2
  says "doctl kubernetes cluster create ingress-lab-doks --region=nyc1 --version=1.34"
  says "--yes runs the command above without asking"
  cloud eks-a1 up
  assert_failure 2
  says "instanceType: a1.4xlarge"
  says "eksctl create cluster -f $checkout/lab/targets/provision/eks-a1.yaml"
  nothing_changed
  cloud doks up --yes
  assert_success
  called "--region=nyc1 --version=1.34 --auto-upgrade=false"
  called "--node-pool=name=workers;size=s-4vcpu-8gb-amd;count=2"
  called "--node-pool=name=generator;size=s-4vcpu-8gb-amd;count=1;label=lab/role=generator;taint=lab/role=generator:NoSchedule"
  called "--tag=ingress-lab --wait --update-kubeconfig=false --set-current-context=false"
  says "KUBECONFIG=$checkout/.cache/clusters/doks.kubeconfig just bench keepalive --target remote --context do-nyc1-ingress-lab-doks"
  assert_equal "$(stat -c %a .cache/clusters/doks.kubeconfig)" 600
  assert [ ! -e "$KUBECONFIG" ]
}

@test "up again creates nothing more and needs no yes; down asks, removes the cluster and its kubeconfig, and is fine again" {
  for cluster in doks eks-a1; do
    cloud "$cluster" up --yes
    : >"$calls"
    cloud "$cluster" up
    assert_success
    says "is there already: nothing is created"
    cloud "$cluster" down
    assert_failure 2
    run ! grep -E 'create cluster|cluster create|delete' "$calls"
    cloud "$cluster" down --yes
    assert_success
    called "delete"
    assert [ ! -e ".cache/clusters/$cluster.kubeconfig" ]
    cloud "$cluster" down
    assert_success
    says "is not there"
  done
}

@test "a cloud that cannot be asked is no cloud without the cluster: nothing is done, and its words and a remedy are shown" {
  stub doctl 'echo "Error: access token is required." >&2; exit 1'
  stub eksctl 'echo "Error: no EC2 IMDS role found" >&2; exit 1'
  for verb in up down; do
    cloud doks "$verb" --yes
    assert_failure 2
    says "Error: access token is required."
    says "doctl auth init"
    cloud eks-a1 "$verb" --yes
    assert_failure 2
    says "aws configure"
  done
  nothing_changed
}

@test "a create that fails, and a cluster that does not come up whatever the status says, name what to do" {
  STATE=error cloud doks up --yes
  assert_failure 2
  says "ingress-lab-doks: is error"
  rm "$CLOUD/doks"
  stub doctl 'case "$*" in *list*) ;; *) echo "Error: 422 will exceed your droplet limit" >&2; exit 1 ;; esac'
  cloud doks up --yes
  assert_failure 2
  says "Error: 422 will exceed your droplet limit"
  says "just down doks"
}

# bats test_tags=slow
@test "up and down remote without a context use none, and name those there are" {
  somebody_elses_kubeconfig production
  for verb in up down; do
    run python -m lab "$verb" remote
    assert_failure 2
    assert_output --partial "the current context is never used"
    assert_output --partial "known: production"
    run python -m lab "$verb" remote --context prodution
    assert_failure 2
    assert_output --partial "did you mean 'production'?"
  done
}

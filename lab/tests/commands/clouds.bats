#!/usr/bin/env bats
# just up|down doks, eks-a1: what is shown, asked and called, with stubs of doctl and eksctl that keep a little cloud;
# and of up|down remote what needs no cluster.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/common.bash
  source "$BATS_TEST_DIRNAME/common.bash"
  own_checkout lab
  cloud=$BATS_TEST_TMPDIR/cloud
  mkdir "$cloud"
  export CLOUD=$cloud
  stub doctl "$DOCTL"
  stub eksctl "$EKSCTL"
}

DOCTL='case "$*" in
*"list-associated-resources"*) echo "{\"load_balancers\":[{\"id\":\"1\",\"name\":\"shop\"}],\"volumes\":null,\"volume_snapshots\":null}" ;;
*"cluster list"*) if [[ -e $CLOUD/doks ]]; then cat "$CLOUD/doks"; else echo "[]"; fi ;;
*"options versions"*) echo "[{\"slug\":\"1.35.0-do.0\"},{\"slug\":\"1.34.9-do.1\"},{\"slug\":\"1.34.10-do.0\"}]" ;;
*"cluster create"*) echo "Notice: Cluster is provisioning"
  [[ ! -e $CLOUD/full ]] || { echo "Error: POST .../clusters: 422 will exceed your droplet limit" >&2; exit 1; }
  echo "[{\"id\":\"8d91\",\"name\":\"ingress-lab-doks\",\"tags\":[\"k8s\",\"ingress-lab\"],\"status\":{\"state\":\"running\"}}]" >"$CLOUD/doks" ;;
*"kubeconfig show"*) echo "{contexts: [{name: do-nyc1-ingress-lab-doks}]}" ;;
*"node-pool list"*) echo "[{\"name\":\"workers\",\"size\":\"s-4vcpu-8gb-amd\",\"count\":2}]" ;;
*"cluster delete"*) rm "$CLOUD/doks" ;;
*"droplet list"*) echo "[]" ;;
*) echo "Error: unexpected: $*" >&2; exit 1 ;;
esac'
EKSCTL='case "$*" in
*"get cluster --name"*) echo "[{\"Name\":\"ingress-lab-eks-a1\",\"Status\":\"ACTIVE\",\"Tags\":{\"ingress-lab\":\"eks-a1\"}}]" ;;
*"get cluster"*) if [[ -e $CLOUD/eks ]]; then echo "[{\"Name\":\"ingress-lab-eks-a1\",\"Region\":\"us-east-1\",\"Owned\":\"True\"}]"; else echo "[]"; fi ;;
*"get nodegroup"*) echo "[{\"Name\":\"proxy\",\"DesiredCapacity\":1,\"InstanceType\":\"a1.4xlarge\"}]" ;;
*"create cluster"*) echo "[i]  creating"; touch "$CLOUD/eks" ;;
*write-kubeconfig*) echo "{contexts: [{name: me@ingress-lab-eks-a1.us-east-1.eksctl.io}]}" >"${!#}" ;;
*"delete cluster"*) rm "$CLOUD/eks" ;;
*) echo "Error: unexpected: $*" >&2; exit 1 ;;
esac'

# lab ARG...: the command line without a terminal, with stdout in $output and stderr in $stderr.
lab() {
  run --separate-stderr timeout 60 python -m lab "$@" </dev/null
}

says() {
  [[ $stderr == *"$1"* ]] || fail "expected '$1' in: $stderr"
  [[ $stderr != *Traceback* ]] || fail "$stderr"
}

called() {
  grep -qF -- "$1" "$calls" || fail "expected '$1' among: $(cat "$calls")"
}

# nothing_changed: no program was called that creates, deletes or writes.
nothing_changed() {
  ! grep -E ' (create|delete|write-kubeconfig) ?' "$calls" || fail "$(cat "$calls")"
}

@test "up doks shows region, machines, version and cost, and without a yes creates nothing" {
  lab up doks
  assert_failure 2
  says "ingress-lab-doks in nyc1"
  says "Kubernetes 1.34.10-do.0 in nyc1"
  says "2 × s-4vcpu-8gb-amd (workers): about 0.17 USD an hour"
  says "1 × s-4vcpu-8gb-amd (generator)"
  says "together: about 0.25 USD an hour, 6.00 USD a day"
  says "prices of 2025-11"
  says "--yes"
  nothing_changed
}

@test "any answer but yes creates nothing, a yes on the terminal does" {
  run script -qec 'python -m lab up doks' /dev/null <<<'no'
  assert_failure 2
  assert_output --partial "nothing was changed"
  nothing_changed
  run script -qec 'python -m lab up doks' /dev/null <<<'yes'
  assert_success
  called "doctl kubernetes cluster create ingress-lab-doks"
}

@test "up doks --yes creates the published shape, leaves the user's kubeconfig alone and says how to measure" {
  lab up doks --yes
  assert_success
  called "--region nyc1 --version 1.34.10-do.0 --tag ingress-lab"
  called "--update-kubeconfig=false"
  called "--node-pool name=workers;size=s-4vcpu-8gb-amd;count=2"
  called "--node-pool name=generator;size=s-4vcpu-8gb-amd;count=1;label=lab/role=generator;taint=lab/role=generator:NoSchedule"
  says "KUBECONFIG=$checkout/.cache/clusters/doks.kubeconfig just bench baseline --target remote --context do-nyc1-ingress-lab-doks"
  [[ ! -e $KUBECONFIG ]]
  assert_equal "$(stat -c %a .cache/clusters/doks.kubeconfig)" 600
}

@test "up doks again creates nothing more, and needs no yes" {
  lab up doks --yes
  rm "$calls"
  lab up doks
  assert_success
  says "is there already (running)"
  nothing_changed
}

# bats test_tags=slow
@test "down doks lists what goes and what stays, and without a yes removes nothing" {
  lab up doks --yes
  rm "$calls"
  lab down doks
  assert_failure 2
  says "pool workers: 2 × s-4vcpu-8gb-amd"
  says "not removed, and paid for on: load balancers shop"
  nothing_changed
  lab down doks --yes
  assert_success
  called "doctl kubernetes cluster delete 8d91 --force"
  called "--tag-name k8s:8d91"
  says "is gone"
  [[ ! -e .cache/clusters/doks.kubeconfig ]]
  lab down doks
  assert_success
  says "is not there: nothing to remove"
}

@test "a cluster of that name without the lab's tag is left alone" {
  echo '[{"id":"1","name":"ingress-lab-doks","tags":["k8s"],"status":{"state":"running"}}]' >"$cloud/doks"
  for verb in up down; do
    lab "$verb" doks --yes
    assert_failure 2
    says "does not carry the lab's mark"
  done
  nothing_changed
}

@test "who is not logged in is told how, before anything is asked" {
  stub doctl 'echo "Error: Unable to initialize DigitalOcean API client: access token is required." >&2; exit 1'
  lab up doks --yes
  assert_failure 2
  says "doctl kubernetes cluster list: Error: Unable to initialize"
  says "doctl auth init"
  stub eksctl 'echo "Error: checking AWS STS access: operation error STS: no EC2 IMDS role found" >&2; exit 1'
  lab up eks-a1 --yes
  assert_failure 2
  says "aws configure"
  nothing_changed
}

@test "a missing command line is named, with where to get it" {
  python=$(command -v python) bash=$(command -v bash)
  rm "$stubs/doctl" "$stubs/eksctl"
  ln -s "$bash" "$stubs/bash"
  PATH=$stubs run "$python" -m lab up doks --yes
  assert_failure 2
  assert_output --partial "doctl: is not on PATH"
  PATH=$stubs run "$python" -m lab up eks-a1 --yes
  assert_output --partial "eksctl: is not on PATH"
}

@test "a version that is not offered any more is refused with those that are" {
  sed -i 's/^kubernetes: .*/kubernetes: "1.29"/' lab/targets/provision/doks.yaml
  lab up doks --yes
  assert_failure 2
  says "does not offer 1.29"
  says "1.34.10-do.0"
  nothing_changed
}

@test "a wrong key and a machine without a price are refused" {
  sed -i 's/^region:/regoin:/' lab/targets/provision/doks.yaml
  lab up doks --yes
  assert_failure 2
  says "lab/targets/provision/doks.yaml: "
  says "did you mean 'region'?"
  sed -i 's/a1.4xlarge/a1.huge/' lab/targets/provision/eks-a1.yaml
  lab up eks-a1 --yes
  assert_failure 2
  says "no price for a1.huge"
  [[ ! -e $cloud/eks ]]
}

@test "a failing create is shown with its own words, a remedy, and how to remove what there is" {
  touch "$cloud/full"
  lab up doks --yes
  assert_failure 2
  says "doctl kubernetes cluster create: Error: POST .../clusters: 422 will exceed your droplet limit"
  says "lower \`count\`"
  says "just down doks"
}

@test "a cluster that did not come up is an error, whatever the command line's status says" {
  stub doctl "${DOCTL/\\\"running\\\"/\\\"error\\\"}"
  lab up doks --yes
  assert_failure 2
  says "(DigitalOcean): is error"
  says "just down doks"
}

# bats test_tags=slow
@test "up eks-a1 shows machines and cost, asks, creates from eksctl's own file and says how to measure" {
  lab up eks-a1
  assert_failure 2
  says "1 × a1.4xlarge (proxy): about 0.42 USD an hour"
  says "control plane: about 0.10 USD an hour"
  nothing_changed
  lab up eks-a1 --yes
  assert_success
  called "eksctl create cluster -f $checkout/lab/targets/provision/eks-a1.yaml --write-kubeconfig=false"
  says "just bench baseline --target remote --context me@ingress-lab-eks-a1.us-east-1.eksctl.io"
  [[ ! -e $KUBECONFIG ]]
  lab down eks-a1
  assert_failure 2
  says "node group proxy: 1 × a1.4xlarge"
  lab down eks-a1 --yes
  assert_success
  called "eksctl delete cluster -f $checkout/lab/targets/provision/eks-a1.yaml --wait"
  says "is gone"
}

@test "the file that eksctl gets is a ClusterConfig with a place for each role" {
  run python - <<'PYTHON'
import yaml
config = yaml.safe_load(open("lab/targets/provision/eks-a1.yaml"))
print(config["apiVersion"], config["kind"], *(group["labels"]["lab/role"] for group in config["nodeGroups"]))
PYTHON
  assert_output "eksctl.io/v1alpha5 ClusterConfig proxy backend generator"
}

# bats test_tags=slow
@test "up and down remote without a context use none, and name those there are" {
  somebody_elses_kubeconfig production
  for verb in up down; do
    lab "$verb" remote
    assert_failure 2
    says "the current context is never used"
    says "known: production"
    lab "$verb" remote --context prodution
    assert_failure 2
    says "did you mean 'production'?"
  done
}

# bats test_tags=slow
@test "a remote cluster that does not answer is said, with where it was looked for" {
  somebody_elses_kubeconfig
  lab up remote --context mine
  assert_failure 1
  says "context mine"
  says "does not answer"
}

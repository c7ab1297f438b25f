#!/usr/bin/env bats
# `just study`: a short real run with its tables.

bats_require_minimum_version 1.11.0

setup() {
  # shellcheck source=lab/tests/commands/verbs.bash
  source "$BATS_TEST_DIRNAME/verbs.bash"
}

# scratch: a checkout of one's own with a study `mine` whose load takes a second.
scratch() {
  scratch_checkout tiny
  cat >lab/studies/mine.toml <<'TOML'
title = "A study of my own"
source = "nobody"
question = "How much does it serve?"
variants = ["ingress-nginx", "qinng-workers-32"]
sweep = "tiny"
quick = {sweep = "tiny", blocks = 1}

[[tables]]
title = "Requests per second"
published = "qinng_setups.csv"
value = "requests_per_s"
unit = "req/s"
rows = ["setup"]
columns = []
metrics.rate = {}
variants.ingress-nginx = {setup = "ingress-nginx_default"}
variants.qinng-workers-32 = {setup = "ingress-nginx_tuned"}
variants.direct = {setup = "direct_pod_ip"}
TOML
}

# bats test_tags=measures
@test "study measures and prints its table in the published shape, again from the records, and as JSON" {
  scratch
  lab study mine --seed 1
  [[ $status -le 1 ]] || fail "$stderr"
  assert_output --partial "Requests per second"
  assert_output --regexp 'ingress-nginx_default .*69,171'
  assert_output --regexp 'direct_pod_ip .*340,748'
  assert_output --regexp 'nginx_proxy +–.* +336,769'
  assert_output --partial "published numbers are of other machines"
  if (($(nproc) < 33)); then
    assert_output --regexp 'ingress-nginx_tuned +–.* 153,473'
    assert_output --partial "not measurable: cores"
  fi
  shown=$output
  id=$(basename "$LAB_RUNS"/*mine-study*)
  lab table "$id"
  assert_equal "$output" "$(grep -v '^report: ' <<<"$shown")" # which is written once
  lab table "$id" --json
  run python -c 'import json, sys; print(json.loads(sys.argv[1])["study"]["key"])' "$output"
  assert_output mine
}

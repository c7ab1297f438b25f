# The lab's table of contents: `just` lists it. Run it as `scripts/shell just …`, which brings the tools.

set positional-arguments := true
set shell := ["bash", "-euo", "pipefail", "-c"]

export PYTHONPATH := justfile_directory()

[private]
default:
    @just --list --unsorted

# Try every prerequisite of every target; what is missing, and how to get it
[group('look')]
[no-exit-message]
doctor *ARGS:
    @python -m lab doctor "$@"

# Variants, knobs, sweeps and studies, all or those with some words in them: just list [WORD…]
[group('look')]
[no-exit-message]
list *ARGS:
    @python -m lab list "$@"

# One variant: its manifests' difference from its baseline, knobs and read-back
[group('look')]
[no-exit-message]
show VARIANT *ARGS:
    @python -m lab show "$@"

# What the studies claim, and what the committed runs say of it: just ledger [STUDY] [--rules]
[group('look')]
[no-exit-message]
ledger *ARGS:
    @python -m lab ledger "$@"

# One self-contained HTML site of the committed runs: overview, ledger, studies, methods; of one run of yours: just report --run RUN
[group('look')]
[no-cd]
[no-exit-message]
report *ARGS:
    @python -m lab report "$@"

# Measure variants against their baselines: just bench keepalive [--sweep S] [--blocks N] [--resume RUN] …
[group('measure')]
[no-cd]
[no-exit-message]
bench *ARGS:
    @python -m lab bench "$@"

# All variants of a study in one run, and its tables in the published shape: just study okd [--quick]
[group('measure')]
[no-cd]
[no-exit-message]
study *ARGS:
    @python -m lab study "$@"

# What should I change here? The knobs of a study or variant one at a time and cumulatively, ranked by effect
[group('measure')]
[no-cd]
[no-exit-message]
ablate *ARGS:
    @python -m lab ablate "$@"

# Bring a variant up and run a command in the client's place: just with ingress-nginx sh -c 'wrk -c64 $LAB_URL/1kB.bin'
[group('measure')]
[no-cd]
[no-exit-message]
with VARIANT *CMD:
    @python -m lab with "$@"

# A run's table again (--from-raw recomputes it from the verbatim output; --usage shows what its processes used)
[group('measure')]
[no-cd]
[no-exit-message]
table RUN *ARGS:
    @python -m lab table "$@"

# The noise of this machine: one variant against itself, and how many blocks resolve 2, 5 and 10 %
[group('measure')]
[no-cd]
[no-exit-message]
aa *ARGS:
    @python -m lab aa "$@"

# The highest rate that a variant serves as it should: just knee ingress-nginx [--p99 20ms]
[group('measure')]
[no-cd]
[no-exit-message]
knee *ARGS:
    @python -m lab knee "$@"

# Every metric of a run, or of two, side by side: medians, effect with its interval, ~ where nothing is resolved: just compare RUN [RUN]
[group('decide')]
[no-cd]
[no-exit-message]
compare *ARGS:
    @python -m lab compare "$@"

# For CI: exit 1 when a regression beyond the bound is resolved: just gate BASELINE_RUN CANDIDATE_RUN --max-regression 5%
[group('decide')]
[no-cd]
[no-exit-message]
gate *ARGS:
    @python -m lab gate "$@"

# How many proxies of which size: just capacity --rate 1M --tls edge [--page 8kB.bin] [--run RUN]
[group('decide')]
[no-cd]
[no-exit-message]
capacity *ARGS:
    @python -m lab capacity "$@"

# After ingress-nginx: what each successor does with your settings, what breaks, what to set: just migrate mine.yaml [ingresses.yaml] [--to traefik-ingress-nginx]
[group('decide')]
[no-cd]
[no-exit-message]
migrate *ARGS:
    @python -m lab migrate "$@"

# A run for other tools: CSV, Parquet, OpenMetrics, or a sample's verbatim output: just export RUN
[group('decide')]
[no-cd]
[no-exit-message]
export *ARGS:
    @python -m lab export "$@"

# Get a cluster ready to measure on: just up kind [--workers N], then just bench keepalive --target kind
[group('clusters')]
[no-cd]
[no-exit-message]
up CLUSTER *ARGS:
    @python -m lab up "$@"

# Remove it and all that the lab made for it: just down kind (what costs money is asked about first, unless --yes)
[group('clusters')]
[no-cd]
[no-exit-message]
down CLUSTER *ARGS:
    @python -m lab down "$@"

# Every test, bats and pytest; with arguments, pytest's (or one .bats file); --record [BUSY] adds a line to data/long/everyday.txt
[group('develop')]
[no-exit-message]
test *ARGS:
    @scripts/test "$@"

# Every linter and type checker; changes nothing, unless with --fix
[group('develop')]
[no-exit-message]
lint *ARGS:
    @scripts/lint "$@"

# Every overlay without each of its knobs: does the read-back notice? (minutes; just sabotage VARIANT… for some)
[group('develop')]
[no-exit-message]
sabotage *ARGS:
    @python -m lab sabotage "$@"

# What the lab itself costs, whether its claims hold, and what each generator reports of known answers: just selfbench [effects | order | calibrate]
[group('develop')]
[no-cd]
[no-exit-message]
selfbench *ARGS:
    @python -m lab selfbench "$@"

# Upkeep of the lab's own files: just maintain pack RUN [--into NAME [--replace]], readme, schema, validate [VARIANT…] or notebook
[group('develop')]
[no-cd]
[no-exit-message]
maintain TASK *ARGS:
    @python -m lab maintain "$@"

# Old spellings: each is answered with the new one, in this release. lab/commands/verbs.py has the table.
[no-exit-message]
_old SPELLING *ARGS:
    @python -m lab "$@"

[private]
calibrate *ARGS: (_old "calibrate" ARGS)

[private]
fmt *ARGS: (_old "fmt" ARGS)

[private]
notebook *ARGS: (_old "notebook" ARGS)

[private]
pack *ARGS: (_old "pack" ARGS)

[private]
readme *ARGS: (_old "readme" ARGS)

[private]
schema *ARGS: (_old "schema" ARGS)

[private]
usage *ARGS: (_old "usage" ARGS)

[private]
validate *ARGS: (_old "validate" ARGS)

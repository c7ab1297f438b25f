# The lab's table of contents: `just` lists it. Run it as `scripts/shell just …`, which brings the tools.

set positional-arguments := true
set shell := ["bash", "-euo", "pipefail", "-c"]

export PYTHONPATH := justfile_directory()

[private]
default:
    @just --list --unsorted

# Check what this machine can measure, and print what is missing
[group('look')]
[no-exit-message]
doctor *ARGS:
    @python -m lab doctor "$@"

# List what can be measured: proxies, settings, loads and studies
[group('look')]
[no-exit-message]
list *ARGS:
    @python -m lab list "$@"

# Show what a setting or variant changes, and how a running proxy is checked for it
[group('look')]
[no-exit-message]
show VARIANT *ARGS:
    @python -m lab show "$@"

# List what each key of your configuration does, and what can be measured: just check FILE
[group('look')]
[no-cd]
[no-exit-message]
check FILE *ARGS:
    @python -m lab check "$@"

# Print what is known of a setting: its effect on every target, and what was published
[group('look')]
[no-exit-message]
settings *ARGS:
    @python -m lab settings "$@"

# Write all committed results as one HTML file, or a page about one run
[group('look')]
[no-cd]
[no-exit-message]
report *ARGS:
    @python -m lab report "$@"

# Measure what a setting or another proxy changes: just bench keepalive
[group('measure')]
[no-cd]
[no-exit-message]
bench *ARGS:
    @python -m lab bench "$@"

# Measure the settings of a variant one at a time and cumulatively, and rank them
[group('measure')]
[no-cd]
[no-exit-message]
ablate *ARGS:
    @python -m lab ablate "$@"

# Measure this machine's noise, and how small a difference it can detect
[group('measure')]
[no-cd]
[no-exit-message]
aa *ARGS:
    @python -m lab aa "$@"

# Find the highest rate that a proxy serves within a latency bound
[group('measure')]
[no-cd]
[no-exit-message]
knee *ARGS:
    @python -m lab knee "$@"

# Start a proxy and run your own command against it
[group('measure')]
[no-cd]
[no-exit-message]
with VARIANT *CMD:
    @python -m lab with "$@"

# Print the result of a run again, or what its processes used
[group('measure')]
[no-cd]
[no-exit-message]
table RUN *ARGS:
    @python -m lab table "$@"

# Plan a move from ingress-nginx: what becomes of your settings in its successors
[group('decide')]
[no-cd]
[no-exit-message]
migrate *ARGS:
    @python -m lab migrate "$@"

# For CI: fail only if something became worse by more than you allow
[group('decide')]
[no-cd]
[no-exit-message]
gate *ARGS:
    @python -m lab gate "$@"

# Compute how many proxies of which size a rate needs
[group('decide')]
[no-cd]
[no-exit-message]
capacity *ARGS:
    @python -m lab capacity "$@"

# Compare every metric of a run's variants with their baselines, or two runs
[group('decide')]
[no-cd]
[no-exit-message]
compare *ARGS:
    @python -m lab compare "$@"

# Write a run for other tools: CSV, JSON, Parquet or OpenMetrics
[group('decide')]
[no-cd]
[no-exit-message]
export *ARGS:
    @python -m lab export "$@"

# Make a cluster for measuring, or prepare yours: just up kind
[group('clusters')]
[no-cd]
[no-exit-message]
up CLUSTER *ARGS:
    @python -m lab up "$@"

# Remove what `just up` made; asks before anything that costs money
[group('clusters')]
[no-cd]
[no-exit-message]
down CLUSTER *ARGS:
    @python -m lab down "$@"

# Measure a published study's variants in one run, and print its tables
[group('research')]
[no-cd]
[no-exit-message]
study *ARGS:
    @python -m lab study "$@"

# List what published studies claim, and whether our measurements support it
[group('research')]
[no-exit-message]
ledger *ARGS:
    @python -m lab ledger "$@"

# Run the tests, bats and pytest: all of every day, or those that you name
[group('contribute')]
[no-exit-message]
test *ARGS:
    @scripts/test "$@"

# Run every linter and type checker; changes files only with --fix
[group('contribute')]
[no-exit-message]
lint *ARGS:
    @scripts/lint "$@"

# Mutation test: leave each setting out, and check that this is noticed
[group('contribute')]
[no-exit-message]
sabotage *ARGS:
    @python -m lab sabotage "$@"

# Check the lab itself: its overhead, effects of known size, load generators
[group('contribute')]
[no-cd]
[no-exit-message]
selfbench *ARGS:
    @python -m lab selfbench "$@"

# Maintain the lab's own files: pack, readme, schema, publish, validate, notebook
[group('contribute')]
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

#!/bin/sh
# Applies settings to the node that it runs on, and puts back what was there.
#
# Usage: tune.sh hold|apply|verify|revert SETTINGS STATE
#
# Every file in SETTINGS is one setting, its content the value: a sysctl's name, `irqbalance` (on, off) or `irq-affinity`
# (CPUs over which the interrupts of the default route's interface are spread, such as 0,4). STATE keeps what was there
# before the first `apply`, so that a second one after a crash does not save its own values. `hold` applies, waits for
# SIGTERM and reverts. `verify` says with its exit status whether the node has every value.
set -eu

on_node() { # COMMAND…
  nsenter -t 1 -m -- "$@"
}

# The interface's interrupts, one a line.
interrupts() {
  device=$(awk '$2 == "00000000" { print $1; exit }' /proc/net/route)
  for folder in "/sys/class/net/$device/device/msi_irqs" "/sys/class/net/$device/device/../msi_irqs"; do
    [ ! -d "$folder" ] || {
      ls "$folder"
      return
    }
  done
}

# The value as `put` takes it.
get() { # NAME
  case $1 in
  irqbalance) if on_node systemctl --quiet is-active irqbalance; then echo on; else echo off; fi ;;
  irq-affinity) for irq in $(interrupts); do printf '%s=%s ' "$irq" "$(cat "/proc/irq/$irq/smp_affinity_list")"; done ;;
  *) tr '\t' ' ' <"/proc/sys/$(echo "$1" | tr . /)" ;;
  esac
}

# `irq-affinity` by CPUs (0,4) → by interrupt (24=0 25=4 26=0); anything else as it is.
spread() { # NAME VALUE
  case $1:$2 in
  irq-affinity:*=*) echo "$2" ;;
  irq-affinity:*) interrupts | awk -v cpus="$2" '{ n = split(cpus, cpu, ","); printf "%s=%s ", $1, cpu[(NR - 1) % n + 1] }' ;;
  *) echo "$2" ;;
  esac
}

put() { # NAME VALUE
  case $1 in
  irqbalance) if [ "$2" = on ]; then on_node systemctl start irqbalance; elif [ "$(get irqbalance)" = on ]; then on_node systemctl stop irqbalance; fi ;;
  irq-affinity)
    [ -n "$(interrupts)" ] || {
      echo "irq-affinity: the default route's interface has no interrupts of its own" >&2
      return 1
    }
    for pair in $(spread "$1" "$2"); do echo "${pair#*=}" >"/proc/irq/${pair%%=*}/smp_affinity_list"; done
    ;;
  *) (echo "$2" >"/proc/sys/$(echo "$1" | tr . /)") ;; # a shell of its own: one that may not open it ends
  esac
}

apply() {
  mkdir -p "$state"
  for file in "$settings"/*; do
    name=${file##*/}
    if [ ! -e "$state/$name" ]; then
      get "$name" >"$state/.$name"
      mv "$state/.$name" "$state/$name"
    fi
    put "$name" "$(cat "$file")"
  done
}

words() { # whatever is between them
  awk '{ $1 = $1; print }'
}

verify() {
  for file in "$settings"/*; do
    name=${file##*/}
    wanted=$(spread "$name" "$(cat "$file")")
    [ "$(get "$name" | words)" = "$(echo "$wanted" | words)" ] || {
      echo "$name: asked for $wanted, the node has $(get "$name")" >&2
      return 1
    }
  done
}

revert() {
  for file in "$settings"/*; do
    name=${file##*/}
    if [ -e "$state/$name" ]; then
      [ "$(get "$name")" = "$(cat "$state/$name")" ] || put "$name" "$(cat "$state/$name")" # what was refused is as it was
      rm "$state/$name"
    fi
  done
}

hold() {
  sleeper='' name=''
  trap 'exit 0' TERM INT
  # However it ends, with a setting that the node refuses too: none of the others stays.
  trap '[ $? = 0 ] || echo "tune.sh: $name: refused by the node" >&2; revert; [ -z "$sleeper" ] || kill "$sleeper"' EXIT
  apply
  while :; do
    sleep 3600 &
    sleeper=$!
    wait "$sleeper"
  done
}

action=$1 settings=$2 state=$3
case $action in
hold | apply | verify | revert) "$action" ;;
*)
  echo "tune.sh: unknown action '$action': hold, apply, verify or revert" >&2
  exit 2
  ;;
esac

#!/usr/bin/env bash
# What OKD's router process does for its HAProxy: starts it, starts it anew when the routes have changed, ends it.
#
# Usage: RELOAD_INTERVAL=5s router.bash CERTIFICATE_FOLDER      as a container's main process; whole seconds
#
# To reload: write the new configuration or maps, then the line `reload` to the FIFO run/reload. The first change is taken
# at once, further ones together when RELOAD_INTERVAL has passed since the last reload began. The new process takes the
# old one's listening sockets over (-x) and tells it to end with its last connection (-sf). One line on stdout per start.
# A new one that cannot start leaves the old one at work. Ends with HAProxy, or on SIGTERM when all connections have ended.
#
# Without -e: a read that times out, a process that has just ended and a failed reload are the normal course here.
set -uo pipefail

home=/var/lib/haproxy
interval_us=$((${RELOAD_INTERVAL%s} * 1000000))
current=""
running=()

# Without a subshell (`jobs` in one): it would be seen as a process of the container that comes and goes.
still_running() {
  local pid left=()
  for pid in "${running[@]}"; do
    ! kill -0 "$pid" 2>/dev/null || left+=("$pid")
  done
  running=("${left[@]}")
}

start() {
  local before began
  began=${EPOCHREALTIME/,/.}
  still_running
  before=("${running[@]}")
  if ((${#before[@]})); then
    haproxy -db -f "$home/conf/haproxy.config" -x "$home/run/haproxy.sock" -sf "${before[@]}" 3>&- 4>&- &
  else
    haproxy -db -f "$home/conf/haproxy.config" 3>&- 4>&- &
  fi
  current=$!
  running+=("$current")
  echo "started $current at $began, $((${#before[@]})) before it"
}

# A child has ended. If it is the newest and none is left, so do we.
child_ended() {
  still_running
  [[ " ${running[*]} " != *" $current "* ]] || return
  if ((${#running[@]} == 0)); then
    echo "haproxy has ended" >&2
    exit 1
  fi
  current=${running[-1]}
  echo "the reload failed: process $current stays at work" >&2
}

finish() {
  trap - CHLD TERM
  still_running
  ((${#running[@]} == 0)) || kill -USR1 "${running[@]}"
  wait
  exit 0
}

main() {
  local due left seconds line
  umask 077
  mkdir -p "$home/run" "$home/router/certs"
  cat "$1/tls.crt" "$1/tls.key" >"$home/router/certs/default.pem"
  rm -f "$home"/run/reload "$home"/run/never
  mkfifo "$home/run/reload" "$home/run/never"
  # Both ways, so that reading waits for the next writer instead of ending with the last one.
  exec 3<>"$home/run/reload" 4<>"$home/run/never"
  trap finish TERM
  start
  trap child_ended CHLD # not earlier: shells that the above forks are children, too
  child_ended
  due=$((${EPOCHREALTIME/[.,]/} + interval_us))
  while :; do
    # bash runs the trap of a dead child when a read has ended, so each is a second long at most. One that ends in the
    # moment in which the line comes has read some of it, which must not be lost; the rest is read below.
    line=""
    read -r -t 1 line <&3 || [[ -n $line ]] || continue
    while left=$((due - ${EPOCHREALTIME/[.,]/})) && ((left > 0)); do
      ((left < 1000000)) || left=1000000
      printf -v seconds '%d.%06d' $((left / 1000000)) $((left % 1000000))
      read -r -t "$seconds" <&4
    done
    while read -r -t 0 <&3; do read -r <&3; done # they are in the same reload
    start
    due=$((${EPOCHREALTIME/[.,]/} + interval_us))
  done
}

main "$@"

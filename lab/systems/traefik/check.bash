#!/usr/bin/env bash
# Check whether Traefik accepts its command line and its file. Traefik has no checker of its own. So it is started where nothing
# reaches it, until it serves the file or reports a fault of the file.
#
# Usage: bash check.bash PROGRAM ARG…     with the arguments of Traefik's container
#
# Exit status: 0; 1 if Traefik reported a fault, which is printed to stderr.
set -euo pipefail

said=$(mktemp)

serves() {
  { exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /api/rawdata HTTP/1.0\r\n\r\n' >&3 && grep -q '@file' <&3; } 2>/dev/null
}

main() {
  local _
  "$@" --log.level=ERROR --log.nocolor=true >"$said" 2>&1 &
  for _ in {1..400}; do
    [[ ! -s $said ]] || break
    ! serves || break
    kill -0 $! 2>/dev/null || break
    sleep 0.025
  done
  kill -KILL $! 2>/dev/null || true # it has ended by itself where it refused its command line
  wait $! 2>/dev/null || true       # 137
  [[ -s $said ]] || return 0
  sed -e 's/^[0-9T:Z+-]* //; s/^.*error="\(.*\)".*$/\1/; s/^{.*"error":"\([^"]*\)".*$/\1/' "$said" >&2
  return 1
}

main "$@"

# A WebSocket server for the backend's pod, made of tools that are there: bash, coreutils, sed, socat. It listens on port $1 of loopback.
#
# It sends "beat" every second until the client sends a frame; it takes any frame for a Close and answers it with one.
set -euo pipefail
export LC_ALL=C

serve() {
  local line key=""
  while IFS= read -r line && line=${line%$'\r'} && [[ -n $line ]]; do
    [[ ${line,,} != sec-websocket-key:* ]] || key=${line#*:}
  done
  if [[ -z $key ]]; then
    printf 'HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
    return
  fi
  # RFC 6455, 4.2.2: hash the key and a constant. sha1sum prints hexadecimal digits, but base64 needs the bytes.
  local hash
  hash=$(printf '%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11' "${key// /}" | sha1sum)
  hash=$(printf '%s' "${hash%% *}" | sed 's/../\\x&/g')
  printf 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n' \
    "$(printf '%b' "$hash" | base64)"
  local heard
  while printf '\x81\x04beat'; do
    heard=0
    read -r -N 1 -t 1 || heard=$?
    case $heard in
      0) printf '\x88\x00' && return ;; # a frame, answered with Close: this server's clients send nothing else
      1) return ;;                      # the end of the connection
    esac
  done
}
export -f serve

exec socat "TCP-LISTEN:$1,bind=127.0.0.1,reuseaddr,fork,backlog=1024" 'EXEC:bash -c serve'

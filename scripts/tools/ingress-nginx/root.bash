# ingress-nginx on Debian's nginx. Sourced by do_root of scripts/tools/controllers.bash.
# shellcheck shell=bash
: "${build:?}" "${debian_python:?}"

# make_root ROOT MADE PINS: the paths that the official image has; MADE has the programs and the module's own files.
make_root() {
  local into=$1 made=$2 pins=$3 file name
  rm -rf "$into"/etc/nginx/{sites-available,sites-enabled,snippets,conf.d,modules-enabled,modules-available}
  cp -r "$made/source/." "$into/etc/"
  rm -rf "$into/etc/nginx/lua/test" "$into/etc/nginx/lua/OWNERS"
  ln -sfn /usr/lib/nginx/modules "$into/etc/nginx/modules"
  cp "$pins/modules.conf" "$into/etc/nginx/modules.conf"
  "$debian_python" "$pins/template.py" "$into"
  install -m 755 "$made/bin/nginx" "$into/nginx-ingress-controller"
  install -m 755 "$made/bin/dbg" "$into/dbg"
  install -m 755 "$made/bin/waitshutdown" "$into/wait-shutdown"
  mkdir -p "$into"/usr/local/{lib,nginx/sbin} "$into"/etc/ingress-controller/{ssl,auth,geoip,telemetry} \
    "$into"/{tmp,run,srv} "$into/tmp/nginx" "$into"/var/log/{nginx,audit} "$into"/var/lib/nginx/{body,fastcgi,proxy,scgi,uwsgi}
  rmdir "$into/var/run"
  ln -s /run "$into/var/run"
  ln -sfn /usr/sbin/nginx "$into/usr/bin/nginx"
  ln -sfn /usr/sbin/nginx "$into/usr/local/nginx/sbin/nginx"
  ln -sfn "/$(cd "$into" && echo usr/lib/*-linux-gnu/libmimalloc.so.3)" "$into/usr/local/lib/libmimalloc.so"
  ln -sfn /dev/stdout "$into/var/log/nginx/access.log"
  ln -sfn /dev/stderr "$into/var/log/nginx/error.log"
  for file in "$pins"/resty.*.lua; do
    name=${file##*/resty.}
    name=${name%.lua}
    install -D -m 644 "$file" "$into/usr/local/share/lua/5.1/resty/${name//.//}.lua"
  done
  printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nwww-data:x:101:82::/usr/local/nginx:/bin/sh\n' >"$into/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\nwww-data:x:82:\n' >"$into/etc/group"
  echo 'nameserver 127.0.0.1' >"$into/etc/resolv.conf" # nothing asks it: Services' names stand in /etc/hosts
  touch "$into/etc/hosts"
  mkdir -p "$into/etc/ssl/certs"
  cat "$into"/usr/share/ca-certificates/mozilla/*.crt >"$into/etc/ssl/certs/ca-certificates.crt"
  about "$into" "$made" "$pins" >"$into/about.txt"
  check "$into" "$pins"
}

about() {
  local nginx
  nginx=$(sed -n 's/^nginx //p' "$1/packages.txt")
  printf 'program: %s\n' "$(<"$2/module")"
  printf 'on: Debian nginx %s\n' "$nginx"
  printf 'in place of missing Lua: %s\n' "$(cd "$3" && grep -L '^-- stub' resty.*.lua | sed 's/\.lua$//' | paste -sd, | sed 's/,/, /g')"
  printf 'not there: %s, stream-lua (TCP and UDP services), ModSecurity, OpenTelemetry\n' "$(cd "$3" && grep -l '^-- stub' resty.*.lua | sed 's/\.lua$//' | paste -sd, | sed 's/,/, /g')"
}

# The Lua that came from two places runs together, and what stands in does what it should; nginx ends by check.conf's own hand.
check() {
  local apart=(unshare --mount)
  ((EUID == 0)) || apart=(unshare --user --map-root-user --mount)
  cp "$2/check.conf" "$1/tmp/check.conf"
  # shellcheck disable=SC2016  # the inner shell's
  "${apart[@]}" sh -euc 'mount --rbind /dev "$0/dev"; exec chroot "$0" /usr/sbin/nginx -c /tmp/check.conf -g "daemon off; master_process off;"' \
    "$1" 2>&1 | tee "$build/check.log"
  rm -rf "$1"/tmp/check.conf "$1"/tmp/nginx/*
  grep -q 'lua check passed' "$build/check.log"
}

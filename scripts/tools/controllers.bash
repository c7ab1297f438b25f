# The steps of scripts/controllers: what there is to make, how long each takes, and how. Sourced after env.bash and steps.bash.
# shellcheck shell=bash
: "${root:?}" "${cache:?}" "${build:?}" "${debian_python:?}"

export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS-}
controllers=$cache/controllers

# NAME SECONDS TITLE of everything; the seconds are those of two CPUs, for the time that is told to be left.
catalogue() {
  cat <<'S'
go_etcd 130 etcd
go_kube-apiserver 290 kube-apiserver
program_ingress-nginx 75 ingress-nginx, the controller
root_ingress-nginx 30 ingress-nginx, its root
S
}

# undone SYSTEM…: the lines of the catalogue that are to be made.
undone() {
  local name seconds title
  while read -r name seconds title; do
    case $name in
      go_*) if elsewhere "${name#go_}"; then continue; fi ;;
      *) [[ " $* " == *" ${name#*_} "* ]] || continue ;;
    esac
    done_already "$name" || printf '%s %s %s\n' "$name" "$seconds" "$title"
  done < <(catalogue)
}

# elsewhere PROGRAM: one that the user or nix brings.
elsewhere() {
  local found
  if [[ -n $KUBEBUILDER_ASSETS ]]; then
    [[ -x $KUBEBUILDER_ASSETS/$1 ]] || die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS: there is no program $1 in it" \
      "  name the folder that has etcd and kube-apiserver, or leave the variable out: they are built"
    return 0
  fi
  found=$(command -v "$1") && [[ $found != "$cache/bin/$1" ]]
}

pins_of() {
  printf '%s\n' "$root/scripts/tools/${1#*_}"/*
}

done_already() {
  local pins
  mapfile -t pins < <(pins_of "$1")
  is_done "$1" "" "${pins[@]}"
}

# make_all LINE…
make_all() {
  local line name seconds title left=0 pins
  for line; do read -r name seconds title <<<"$line" && left=$((left + seconds)); done
  command -v go >/dev/null || die "go is not on PATH: it builds what --target apiserver runs" \
    "  start it by scripts/shell, which brings it; where KUBEBUILDER_ASSETS and LAB_IMAGES name what there is, nothing is built"
  for line; do
    read -r name seconds title <<<"$line"
    printf 'for --target apiserver, once: %s … (about %s left)\n' "$title" "$(minutes "$left")" >&2
    mapfile -t pins < <(pins_of "$name")
    step "$name" "$title" "" "${pins[@]}"
    left=$((left - seconds))
  done
}

minutes() {
  if (($1 < 90)); then printf '%d s' "$1"; else printf '%d min' $((($1 + 59) / 60)); fi
}

# do_program SYSTEM: the Go programs that its module names by `tool` lines, by their packages' names, into .cache/controllers/SYSTEM/bin.
do_program() {
  local into=${controllers:?}/$1 package module version
  go_environment
  cd "$root/scripts/tools/$1" || return
  rm -rf "${into:?}/bin"
  mkdir -p "$into/bin"
  while read -r package; do
    module=$(go list -f '{{.Module.Path}}' "$package") version=$(go list -f '{{.Module.Version}}' "$package")
    go build -ldflags "-s -w -X $module/version.RELEASE=$version -X $module/version.REPO=$module" -o "$into/bin/${package##*/}" "$package"
  done < <(go list tool)
  printf '%s %s\n' "$module" "$version" >"$into/module"
  rm -rf "$into/source"
  cp -r "$(go list -m -f '{{.Dir}}' "$module")/rootfs/etc" "$into/source"
  chmod -R u+w "$into/source"
}

# do_root SYSTEM: a root file system of Debian's packages with the system's own files, into .cache/controllers/SYSTEM/root.
do_root() {
  local own=$root/scripts/tools/$1 into=${controllers:?}/$1
  local new=$into/root.new
  rm -rf "$new"
  mkdir -p "$new"
  unpack "$own/packages.txt" "$new"
  # shellcheck source=/dev/null  # one of scripts/tools/*/root.bash
  source "$own/root.bash"
  make_root "$new" "$into" "$own"
  rm -rf "${into:?}/root"
  mv "$new" "$into/root"
}

# unpack LIST ROOT: Debian packages and all they depend on, without dpkg's scripts; which they were, into ROOT/packages.txt.
unpack() {
  local apt=$build/apt list=$1 into=$2 deb packages
  command -v apt-get dpkg-deb >/dev/null || {
    echo "apt-get and dpkg-deb are Debian's; elsewhere LAB_IMAGES=<file> with a line ingress-nginx-controller: /FOLDER names the image's files"
    return 1
  }
  rm -rf "$apt"
  mkdir -p "$apt"/{lists,archives}/partial
  : >"$apt/status"
  sources trixie >"$apt/sources.list"
  cat >"$apt/apt.conf" <<S
Dir::State "$apt"; Dir::State::status "$apt/status"; Dir::Cache "$apt"; Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null"; Dir::Etc::Preferences "/dev/null"; Dir::Etc::PreferencesParts "/dev/null";
Debug::NoLocking "true"; APT::Sandbox::User ""; APT::Install-Recommends "false"; Acquire::Languages "none";
S
  export APT_CONFIG=$apt/apt.conf
  apt-get -q update
  mapfile -t packages <"$list"
  apt-get -q -y --download-only install "${packages[@]}"
  dpkg-deb -x "$apt"/archives/base-files_*.deb "$into" # the links /bin, /lib come first
  for deb in "$apt"/archives/*.deb; do
    dpkg-deb -x "$deb" "$into"
    dpkg-deb --show --showformat '${Package} ${Version}\n' "$deb"
  done >"$into/packages.txt"
  rm -rf "$into"/usr/share/{doc,man,locale,info,lintian}
}

# sources SUITE: the machine's own mirrors of Debian, or Debian's.
sources() {
  local found
  found=$(APT_CONFIG='' apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian(-security)?/?$' | sort -u)
  awk -v suite="$1" '{ print "deb", $1, (/-security/ ? suite "-security" : suite), "main" }' \
    <<<"${found:-$'http://deb.debian.org/debian\nhttp://deb.debian.org/debian-security'}"
}

# shellcheck shell=bash
# What `doks` and `eks-a1` have in common; each sources this. All that they say goes to stderr.

verb=${1-} yes=${2-} cluster=${0##*/} here=$(cd -P "${BASH_SOURCE[0]%/*}" && pwd)
kubeconfig=${here%/lab/*}/.cache/clusters/$cluster.kubeconfig # the checkout's own, never the user's
umask 077

if [[ $verb != up && $verb != down || ${yes:---yes} != --yes ]]; then
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi

refuse() { # PLACE FAULT REMEDY
  printf '%s: %s\n  %s\n' "$@" >&2
  exit 2
}

# run_after_yes REMEDY COMMAND…: prints the command, asks for a yes unless --yes was given, and runs it.
run_after_yes() {
  local remedy=$1 answer=
  shift
  printf 'This will run:\n %s\n' "$(printf ' %q' "$@")" >&2
  if [[ ! $yes ]]; then
    [[ -t 0 ]] || refuse "just $verb $cluster" "stdin is no terminal to ask on; nothing was changed" "--yes runs the command above without asking"
    read -rp "Run it? yes or no: " answer || true # the end of input is no yes
    [[ ${answer,,} == y || ${answer,,} == yes ]] || refuse "just $verb $cluster" "the answer was not yes; nothing was changed" "call it again when you want it"
  fi
  trap 'refuse "$1" "interrupted" "$remedy"' INT
  "$@" >&2 || refuse "$1" "failed, as it says above" "$remedy"
  trap - INT
}

print_how_to_measure() {
  local context
  context=$(sed -n 's/^current-context: *//p' "$kubeconfig")
  [[ $context ]] || refuse "$kubeconfig" "names no current context" "\`just up $cluster\` fetches it again"
  cat >&2 <<TEXT
Ready. It costs money until \`just down $cluster\`. The nodes pull the images; the one of the generators is in no public registry, so put it into
one of yours and name it in LAB_IMAGES (lab/targets/provision/README.md). Then measure with
  KUBECONFIG=$kubeconfig just bench keepalive --target remote --context $context
TEXT
}

#!/usr/bin/env bats
# flake.nix, evaluated against a stub nixpkgs that has the attribute names it uses and nothing else.

bats_require_minimum_version 1.11.0

setup() {
  bats_load_library bats-support
  bats_load_library bats-assert
  root=$(cd "$BATS_TEST_DIRNAME/../../.." && pwd)
  command -v nix-instantiate >/dev/null || skip "nix-instantiate is not on PATH (apt-get install nix-bin)"
  export NIX_STATE_DIR=$BATS_TEST_TMPDIR/state NIX_STORE_DIR=$BATS_TEST_TMPDIR/store HOME=$BATS_TEST_TMPDIR
}

outputs() { # EXPRESSION over `out`
  nix-instantiate --eval --strict --json --expr "
    let
      named = builtins.foldl' (all: name: all // { \${name} = name; }) { };
      lib = {
        genAttrs = names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names);
        optionals = condition: list: if condition then list else [ ];
      };
      pkgsFor = system: named [
        \"git\" \"haproxy\" \"hey\" \"just\" \"k6\" \"kind\" \"kubectl\" \"kustomize\" \"nghttp2\" \"nginx\"
        \"nixfmt-tree\" \"oha\" \"pyright\" \"ruff\" \"shellcheck\" \"shfmt\" \"uv\" \"wrk\" \"wrk2\"
        \"e2fsprogs\" \"etcd\" \"go\" \"iproute2\" \"kubernetes\" \"nftables\" \"procps\" \"socat\" \"sockperf\" \"util-linux\"
        \"bashInteractive\" \"cacert\" \"coreutils\" \"curl\" \"gawk\" \"gnugrep\" \"gnused\" \"gnutar\" \"iana-etc\"
        \"microsocks\" \"openssl\"
      ] // {
        dockerTools = named [ \"binSh\" \"fakeNss\" ] // { buildLayeredImage = image: image; };
        stdenv.hostPlatform = { inherit system; isLinux = builtins.match \".*-linux\" system != null; };
        bats.withLibraries = f: [ \"bats\" ] ++ f (named [ \"bats-assert\" \"bats-support\" ]);
        python3.withPackages = f: f (named [
          \"certifi\" \"crossplane\" \"cryptography\" \"hypothesis\" \"ipython\" \"jinja2\" \"jsonschema\" \"jupyterlab\" \"kubernetes\" \"kubernetes-validate\"
          \"markdown-it-py\" \"nbclient\" \"nbformat\" \"numpy\" \"plotly\" \"polars\" \"prometheus-client\" \"psutil\" \"pydantic\" \"pytest\" \"pytest-xdist\" \"pyyaml\" \"rich\"
          \"scipy\" \"types-pyyaml\" \"urllib3\" \"websocket-client\" \"zstandard\"
        ]);
        mkShellNoCC = shell: shell;
        runCommand = name: attributes: script: { inherit name script; };
      };
      out = (import $root/flake.nix).outputs {
        self = \"/checkout\";
        nixpkgs = { inherit lib; legacyPackages = lib.genAttrs [ \"x86_64-linux\" \"aarch64-linux\" \"x86_64-darwin\" \"aarch64-darwin\" ] pkgsFor; };
      };
    in $1"
}

@test "dev shell, wrk2 on Linux on x86-64 alone, formatter and checks evaluate on every system" {
  run --separate-stderr outputs 'builtins.mapAttrs (name: shells: [
    (builtins.length shells.default.packages > 15) (builtins.elem "wrk2" shells.default.packages) ]) out.devShells'
  assert_success
  assert_output '{"aarch64-darwin":[true,false],"aarch64-linux":[true,false],"x86_64-darwin":[true,false],"x86_64-linux":[true,true]}'
  run --separate-stderr outputs '[ out.formatter.x86_64-linux out.checks.x86_64-linux.lint.name ]'
  assert_success
  assert_output '["nixfmt-tree","lint"]'
}

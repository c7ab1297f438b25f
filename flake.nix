{
  description = "A benchmark lab for ingress proxies: one tuning step, its baseline, and whether the step mattered";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      forAll = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      inherit (nixpkgs.lib) optionals;
      # What pyproject.toml pins, less what nix brings as a program; lab/tests/scripts/test_tools.py compares.
      python = pkgs: pkgs.python3.withPackages (p: with p; [
        certifi crossplane cryptography hypothesis ipython jinja2 jsonschema jupyterlab kubernetes
        kubernetes-validate markdown-it-py nbclient nbformat numpy plotly polars prometheus-client psutil pydantic pytest
        pytest-xdist pyyaml referencing rich scipy types-pyyaml urllib3 websocket-client zstandard
      ]);
      tools = pkgs: with pkgs; [
        (bats.withLibraries (p: [ p.bats-assert p.bats-support ]))
        git haproxy hey just k6 kind kubectl kustomize nghttp2 nginx oha pyright (python pkgs)
        ruff shellcheck shfmt uv wrk
      ]
      # The targets local and apiserver are Linux's alone; etcd, kubernetes (kube-apiserver) and go are the latter's.
      ++ optionals stdenv.hostPlatform.isLinux [ e2fsprogs etcd go iproute2 kubernetes nftables procps socat sockperf util-linux ]
      # wrk2 has never been built elsewhere.
      ++ optionals (stdenv.hostPlatform.system == "x86_64-linux") [ wrk2 ];
      # The generators' image for clusters; without nix, lab/targets/provision/images/Dockerfile makes the same. Nobody here has built
      # it: lab/tests/commands/flake.bats evaluates it. `/tmp` is for what runs without a scratch folder of its own.
      loadgen = pkgs: pkgs.dockerTools.buildLayeredImage {
        name = "docker.io/lab/loadgen";
        tag = "built-here";
        contents = with pkgs; [
          bashInteractive cacert coreutils curl e2fsprogs gawk gnugrep gnused gnutar hey iana-etc iproute2 k6 microsocks nghttp2 oha
          openssl procps sockperf socat util-linux wrk
          dockerTools.binSh dockerTools.fakeNss
        ]
        ++ optionals (stdenv.hostPlatform.system == "x86_64-linux") [ wrk2 ];
        extraCommands = "mkdir -m 1777 tmp";
        config = { Cmd = [ "sleep" "infinity" ]; Env = [ "PATH=/bin:/sbin:/usr/bin:/usr/sbin" ]; };
      };
    in
    {
      packages = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: {
        loadgen = loadgen nixpkgs.legacyPackages.${system};
      });
      devShells = forAll (pkgs: { default = pkgs.mkShellNoCC { packages = tools pkgs; }; });
      formatter = forAll (pkgs: pkgs.nixfmt-tree);
      checks = forAll (pkgs: {
        lint = pkgs.runCommand "lint" { nativeBuildInputs = tools pkgs; } ''
          cp -r --no-preserve=mode ${self} lab && cd lab && HOME=$PWD just lint && touch $out
        '';
      });
    };
}

"""The two servers of a Kubernetes API, etcd and kube-apiserver: processes of one run, with their data in memory.

Each run uses a new random token. The servers listen in the lab's network namespace, which acts as the node. Pods reach
the API server at `NODE_ADDRESS`, and other machines cannot reach it. RBAC is enabled, so a controller may do only what
the roles in its manifests allow. There is no controller manager, scheduler or kubelet: the module `registry` writes the
objects that these would write. `start` returns at once, and `api` waits until the API server is ready.
"""

from __future__ import annotations

import importlib
import json
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import urllib3

from lab.base.errors import LabError, LostError
from lab.base.files import read_text_if_readable
from lab.systems.manifests import certificates
from lab.targets.apiserver import programs
from lab.targets.cluster.api import Api
from lab.targets.common.process import make_environment
from lab.targets.local.sandbox import network
from lab.targets.local.sandbox.namespaces import STATE

PORT, ETCD_PORT, ETCD_PEER_PORT = 6443, 2379, 2380
"""The ports of the API server, of etcd, and of etcd for its peers."""
CONTEXT = "apiserver"
"""The name of the cluster, user and context in the kubeconfig."""
DEADLINE_S = 60.0
"""The seconds within which each server must answer."""
LOOK_S = 0.02
"""The seconds between two attempts to reach a server."""
ISSUER = "https://kubernetes.default.svc"
"""The issuer of service account tokens."""
SERVICES = "10.96.0.0/16"
"""The range of the Services' cluster IPs; here no kube-proxy translates them to addresses of pods."""
FOLDER = STATE / "apiserver"
"""The folder of the servers' files."""
NAMES = ("kubernetes", "kubernetes.default.svc", "127.0.0.1", network.NODE_ADDRESS, "10.96.0.1")
"""The names and addresses of the API server's certificate."""
PLUGINS_OFF = "ServiceAccount,TaintNodesByCondition,Priority,StorageObjectInUseProtection"
"""The admission plugins that are off, because they wait for what a controller manager writes."""


class Servers:
    """The two servers of a Kubernetes API for one run: etcd and kube-apiserver, as processes on this machine."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starting: Future[Api] | None = None
        self._stopped = threading.Event()

    @property
    def authority(self) -> str:
        """The certificate (PEM) of the authority that signed the API server's certificate; pods need it to trust the server."""
        return _issue_certificate()["ca.crt"]

    def start(self) -> None:
        """Start etcd and kube-apiserver in a thread; a second call does nothing.

        An error in that thread is raised by `api`.

        Raises:
            UsageError: A program is missing.

        """
        if self._starting is None:
            for name in programs.SERVERS:
                programs.server(name)
            self._starting = ThreadPoolExecutor(1, "servers").submit(self._run)

    def api(self) -> Api:
        """Wait until the API server is ready, and return the client for it.

        Raises:
            LostError: The API server does not come up, or one of the two servers has ended.

        """
        assert self._starting is not None
        api = self._starting.result()
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise LostError(f"{name} of this run", f"has ended: {_read_log_tail(name)}", "start the command again")
        return api

    def processes(self) -> list[int]:
        """Return the process ids of those of the two servers, etcd and kube-apiserver, that run now."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def stop(self) -> None:
        """End etcd and kube-apiserver; further calls do nothing."""
        self._stopped.set()
        if self._starting is not None:
            wait([self._starting])
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()
        self._processes.clear()

    def _run(self) -> Api:
        """Start etcd and then kube-apiserver, wait for each to answer, and return the client; this is the thread's body."""
        try:
            token = _prepare_files()
            self._start_process("etcd", *_ETCD)
            self._wait_until("etcd", _is_etcd_listening)
            self._start_process("kube-apiserver", *_KUBE_APISERVER)
            for module in ("kubernetes.client", "kubernetes.config"):
                importlib.import_module(module)  # this takes a second or more, while the server starts
            pool = urllib3.PoolManager(ca_cert_data=self.authority, headers={"Authorization": f"Bearer {token}"})
            self._wait_until("kube-apiserver", lambda: _is_api_ready(pool))
            return Api(CONTEXT, FOLDER / "kubeconfig")
        except LabError:
            raise
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            raise LostError("the API server of this run", str(error), "`just doctor` tries what it needs") from None

    def _start_process(self, name: str, *options: str) -> None:
        with (FOLDER / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [programs.server(name), *options],
                cwd=FOLDER,
                env=make_environment(FOLDER),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until(self, name: str, answers: Callable[[], bool]) -> None:
        """Wait until a server answers.

        Args:
            name: The name of the server, `etcd` or `kube-apiserver`.
            answers: The function that returns whether the server answers now.

        Raises:
            LostError: The server ends, does not answer within DEADLINE_S seconds, or was asked to stop.

        """
        deadline = time.monotonic() + DEADLINE_S
        while not answers():
            if self._stopped.is_set():
                raise LostError(name, "was asked to stop", "")
            ended = self._processes[name].poll() is not None
            if ended or time.monotonic() > deadline:
                fault = "ended" if ended else f"did not answer within {DEADLINE_S:.0f} s"
                raise LostError(f"{name} of this run", f"{fault}: {_read_log_tail(name)}", "start the command again")
            time.sleep(LOOK_S)


_ETCD = (
    "--name=lab",
    "--data-dir=data",
    "--unsafe-no-fsync",  # in memory, for one run
    "--log-level=warn",
    f"--listen-client-urls=http://127.0.0.1:{ETCD_PORT}",
    f"--advertise-client-urls=http://127.0.0.1:{ETCD_PORT}",
    f"--listen-peer-urls=http://127.0.0.1:{ETCD_PEER_PORT}",
    f"--initial-advertise-peer-urls=http://127.0.0.1:{ETCD_PEER_PORT}",
    f"--initial-cluster=lab=http://127.0.0.1:{ETCD_PEER_PORT}",
)
_KUBE_APISERVER = (
    f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
    f"--secure-port={PORT}",
    f"--advertise-address={network.NODE_ADDRESS}",
    "--endpoint-reconciler-type=none",
    "--tls-cert-file=tls.crt",
    "--tls-private-key-file=tls.key",
    "--token-auth-file=tokens.csv",
    "--authorization-mode=RBAC",
    f"--service-account-issuer={ISSUER}",
    "--service-account-key-file=accounts.crt",
    "--service-account-signing-key-file=accounts.key",
    f"--service-cluster-ip-range={SERVICES}",
    "--allow-privileged",
    f"--disable-admission-plugins={PLUGINS_OFF}",
    "--enable-priority-and-fairness=false",
    "--profiling=false",
    "--v=1",
)


def _prepare_files() -> str:
    """Write the files that etcd and kube-apiserver need (certificates, tokens, kubeconfig), and return the lab's token.

    The token is new and random; with it the lab has all rights at the API server.
    """
    FOLDER.mkdir(mode=0o700)
    token = secrets.token_hex(32)
    accounts = certificates.issue(certificates.CertificateRequest(("service-accounts",), "ecdsa-256"))
    cluster = {"server": f"https://127.0.0.1:{PORT}", "certificate-authority": str(FOLDER / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
    }
    texts = {
        **_issue_certificate(),
        "accounts.crt": accounts["tls.crt"],
        "accounts.key": accounts["tls.key"],
        "tokens.csv": f"{token},lab,lab,system:masters\n",
        "kubeconfig": json.dumps(config),
    }
    for name, text in texts.items():
        (FOLDER / name).write_text(text)
    network.run_ip([], [f"address replace {network.NODE_ADDRESS}/32 dev lo"])
    return token


def _issue_certificate() -> dict[str, str]:
    return dict(certificates.issue(certificates.CertificateRequest(NAMES, "ecdsa-256")))


def _is_etcd_listening() -> bool:
    try:
        socket.create_connection(("127.0.0.1", ETCD_PORT), 1.0).close()
    except OSError:
        return False
    return True


def _is_api_ready(pool: urllib3.PoolManager) -> bool:
    try:
        return pool.request("GET", f"https://127.0.0.1:{PORT}/readyz", timeout=2.0, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _read_log_tail(name: str) -> str:
    """Return the last three lines of a server's log, joined by ` | ` into one line, for an error message.

    The result for an empty or missing log is `it printed nothing`.
    """
    return " | ".join(read_text_if_readable(FOLDER / f"{name}.log").strip().splitlines()[-3:]) or "it printed nothing"

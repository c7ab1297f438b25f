"""The hosts of a variant's routes, as the client's place resolves them; `lab.model.variants.hosts` knows which there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.base.errors import MeasuringError

HOSTS = Path("/etc/hosts")


def resolving(addresses: Mapping[str, str], folder: Path, hosts_file: Path = HOSTS) -> tuple[str, ...]:
    """The command that runs what follows where each host has its address, beside what is known anyway. MeasuringError.

    A mount namespace of its own covers the file: another system's hosts may have the same names.
    """
    try:
        known = hosts_file.read_text()
    except OSError as error:
        raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
    own = folder / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    own.write_text(known + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    own.chmod(0o644)
    cover = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", cover, str(own), str(hosts_file))

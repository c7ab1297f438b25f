"""The hosts of a variant's routes, as the client's place resolves them; `lab.model.variants.hosts` knows which there are."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab.base.errors import MeasuringError

HOSTS = Path("/etc/hosts")


@contextmanager
def resolving(addresses: Mapping[str, str], hosts_file: Path = HOSTS) -> Iterator[None]:
    """Host → address, for everything in the lab's own mount namespace, till the end. MeasuringError."""
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as file:
        try:
            file.write(hosts_file.read_text())
        except OSError as error:
            raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
        file.writelines(f"{address} {name}\n" for name, address in addresses.items())
        file.flush()
        Path(file.name).chmod(0o644)
        _mount("mount", "--bind", file.name, str(hosts_file))
        try:
            yield
        finally:
            _mount("umount", "--lazy", str(hosts_file))


def _mount(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasuringError("local target", f"{' '.join(argv)}: {done.stderr.strip()}", "`just doctor` checks mounts")

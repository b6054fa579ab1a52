"""The lock files: which packages the image is made of, by version and hash. Reads them only.

``debian.lock.json`` has the packages of Debian for both architectures, ``python-ARCH.lock`` those
of Python in the form that ``pip install --require-hashes -r`` takes. `renewing` writes them.
"""

import calendar
import re
import time
from pathlib import Path
from typing import Final

import msgspec
import yaml

from libvgpu.errors import ConfigError, UsageError

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
#: Debian's name of an architecture, and the one that Linux and Python's packages have for it.
ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
DEBIAN_LOCK: Final = HERE / "debian.lock.json"
SUITE: Final = "bookworm"
STAMP_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_PINNED = re.compile(r"([\w.-]+)==(\S+)((?:\s+\\?\s*--hash=sha256:[0-9a-f]{64})+)")


class DebianPackage(msgspec.Struct, frozen=True):
    """One package of Debian for one architecture.

    Attributes:
        path: below a mirror's root: archive and pool path.
    """

    name: str
    version: str
    path: str
    size_bytes: int
    sha256: str


class DebianLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All packages of Debian.

    Attributes:
        stamp: when they were the newest, as snapshot.debian.org names moments; UTC.
        packages: by architecture.
    """

    suite: str
    stamp: str
    packages: dict[str, list[DebianPackage]]

    @property
    def epoch_s(self) -> int:
        """The stamp in seconds since 1970: the time that everything in the image has."""
        return calendar.timegm(time.strptime(self.stamp, STAMP_FORMAT))


class PythonPackage(msgspec.Struct, frozen=True):
    """One package of Python; any of the files with these hashes will do."""

    name: str
    version: str
    sha256: tuple[str, ...]


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """contents.yaml: patterns of what is kept, by package, and of what of it is left out."""

    packages: dict[str, list[str]]
    leave_out: list[str]


def machine_of(architecture: str) -> str:
    """Returns Linux' name of an architecture.

    Raises:
        UsageError: there is no lock for it.
    """
    if architecture not in ARCHITECTURES:
        raise UsageError(
            f"there is no image for architecture {architecture!r}, "
            f"only for {' and '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[architecture]


def python_lock(architecture: str) -> Path:
    """Returns the path of the lock of Python's packages."""
    return HERE / f"python-{architecture}.lock"


def read_contents() -> Contents:
    """Returns what the image has of Debian."""
    return msgspec.convert(yaml.safe_load((HERE / "contents.yaml").read_text()), Contents)


def read_debian_lock(path: Path = DEBIAN_LOCK) -> DebianLock:
    """Returns the lock of Debian's packages.

    Raises:
        ConfigError: it is not one.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=DebianLock)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} is no lock of Debian's packages: {error}") from error


def read_python_lock(path: Path) -> list[PythonPackage]:
    """Returns the packages of a lock of Python's.

    Raises:
        ConfigError: a line pins no version or has no hash.
    """
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).strip()
    found, end = [], 0
    for match in _PINNED.finditer(text):
        if text[end : match.start()].strip():
            break
        hashes = tuple(re.findall(r"sha256:([0-9a-f]{64})", match[3]))
        found.append(PythonPackage(match[1], match[2], hashes))
        end = match.end()
    if text[end:].strip() or not found:
        wrong = text[end:].strip().splitlines() or ["nothing"]
        raise ConfigError(
            f"{path} has {wrong[0]!r} where NAME==VERSION with --hash=sha256:… is needed; "
            "write it with: python -m deploy.image lock"
        )
    return found

"""Brings locked packages into a cache, and lets nothing in whose hash is another one.

Debian's come by apt's own downloader, so a proxy that apt is set up for is used; Python's by pip.
What is in the cache already is not asked for.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from libvgpu.errors import VgpuError

from .locks import DebianLock, DebianPackage, PythonPackage, machine_of

APT_HELPER: Final = Path("/usr/lib/apt/apt-helper")
MIRROR: Final = "http://deb.debian.org"
SNAPSHOT: Final = "http://snapshot.debian.org/archive"
PYTHON_VERSION: Final = "3.11"
#: Of the loader of `locks.SUITE`: wheels may ask for no newer one, and glibc 2.5 was manylinux1's.
_GLIBC_MINORS = range(5, 37)
_TIMEOUT_S = 600


class Unreachable(VgpuError):  # noqa: N818 - it says what is so
    """Packages are neither in the cache nor to be had from any place that was asked."""


def sha256_of(path: Path) -> str:
    """Returns a file's hash in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bring_debian(
    lock: DebianLock, architecture: str, cache: Path, mirror: str | None = None
) -> dict[str, Path]:
    """Returns the files of all locked packages of Debian, by name.

    Args:
        mirror: the root that is asked instead of the usual ones: the URL above ``debian``.

    Raises:
        Unreachable: some are not to be had.
        VgpuError: a mirror gave another file than the locked one.
    """
    cache.mkdir(parents=True, exist_ok=True)
    packages = lock.packages[architecture]
    roots = [mirror.rstrip("/")] if mirror else [*_apt_roots(), MIRROR, SNAPSHOT]
    said = list[str]()
    for root in dict.fromkeys(roots):
        missing = [each for each in packages if not _cached(cache, each).exists()]
        if missing:
            said += _bring_from(root, lock.stamp, missing, cache)
    missing = [each for each in packages if not _cached(cache, each).exists()]
    if missing:
        raise Unreachable(
            f"{len(missing)} packages of Debian are not to be had, {missing[0].path} among them: "
            f"{'; '.join(said)}",
            hint="name a mirror with --mirror, or find newer ones: python -m deploy.image lock",
        )
    return {each.name: _cached(cache, each) for each in packages}


def bring_python(
    packages: Sequence[PythonPackage], lock: Path, architecture: str, cache: Path
) -> list[Path]:
    """Returns the wheels of all locked packages of Python, in the order of the lock.

    Raises:
        Unreachable: some are not to be had.
        VgpuError: the index gave another file than the locked one.
    """
    cache.mkdir(parents=True, exist_ok=True)
    found = _by_hash(cache)
    if not all(set(each.sha256) & found.keys() for each in packages):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input",
                   "--disable-pip-version-check", "--retries=2", "--no-deps", "--require-hashes",
                   *target_options(architecture), f"--dest={cache}",
                   f"--requirement={lock}"]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        if done.returncode:
            words = done.stderr.strip()
            if "DO NOT MATCH THE HASHES" in words:
                raise VgpuError(f"a package of Python is not the one that {lock} names: {words}")
            raise Unreachable(f"packages of Python are not to be had: {words}")
        found = _by_hash(cache)
    return [next(found[each] for each in package.sha256 if each in found) for package in packages]


def target_options(architecture: str) -> list[str]:
    """Returns the options that tell pip which Python and which system it chooses wheels for."""
    machine = machine_of(architecture)
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS]
    return [
        *(f"--platform={each}" for each in (*platforms, f"manylinux2014_{machine}")),
        f"--python-version={PYTHON_VERSION}",
        "--implementation=cp",
        "--only-binary=:all:",
        "--abi=cp311",
        "--abi=abi3",
        "--abi=none",
    ]


def _bring_from(root: str, stamp: str, packages: Iterable[DebianPackage], cache: Path) -> list[str]:
    """Brings what one place has; returns the first of apt's complaints, if there are any."""
    if not APT_HELPER.exists():
        raise VgpuError(f"{APT_HELPER} is missing: the image is built on Debian or Ubuntu")
    with tempfile.TemporaryDirectory(prefix=".part-", dir=cache) as part:
        wanted, orders = {}, list[str]()
        for package in packages:
            archive, _, rest = package.path.partition("/")
            where = f"{archive}/{stamp}" if root == SNAPSHOT else archive
            draft = Path(part, os.path.basename(package.path))
            orders += [f"{root}/{where}/{quote(rest)}", str(draft)]
            wanted[draft] = package
        done = subprocess.run(
            [str(APT_HELPER), "--option=APT::Sandbox::User=root", "--option=Acquire::Retries=1",
             "--option=Acquire::http::Timeout=20", "download-file", *orders],
            capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
        for draft, package in wanted.items():
            if not draft.exists():
                continue
            if (found := sha256_of(draft)) != package.sha256:
                raise VgpuError(
                    f"{root} gave another {package.path} than the locked one: its SHA-256 is "
                    f"{found}, not {package.sha256}"
                )
            draft.rename(_cached(cache, package))
    errors = (line for line in done.stderr.splitlines() if line.startswith("E: "))
    return [line.removeprefix("E: ") for line in errors][:1]


def _cached(cache: Path, package: DebianPackage) -> Path:
    return cache / f"{package.sha256[:16]}-{os.path.basename(package.path)}"


def _by_hash(cache: Path) -> dict[str, Path]:
    return {sha256_of(path): path for path in sorted(cache.glob("*.whl"))}


def _apt_roots() -> list[str]:
    """Returns the mirrors of Debian that this machine's apt is set up for."""
    try:
        said = subprocess.run(
            # Found on PATH, as `make image` says.
            ["apt-get", "indextargets", "--format=$(REPO_URI)", "Origin: Debian"],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        ).stdout
    except OSError:
        return []
    return [line.strip().rstrip("/").rpartition("/")[0] for line in said.splitlines() if line]

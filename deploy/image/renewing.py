"""Finds the newest packages and writes the lock files: ``python -m deploy.image lock``.

apt resolves in a directory of its own, with Debian's key, and pip for both architectures; what this
machine has installed plays no part.
"""

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from libvgpu.errors import VgpuError
from libvgpu.json_rows import to_rows

from . import downloads, locks

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_ARCHIVES: Final = (
    ("debian", locks.SUITE),
    ("debian", f"{locks.SUITE}-updates"),
    ("debian-security", f"{locks.SUITE}-security"),
)
_PYTHON_HEADER: Final = """\
# The packages of Python in the image for {architecture}: the project's own and those of its extra
# `agent`, and what these need. Written by: python -m deploy.image lock
"""


def renew(mirror: str = downloads.MIRROR) -> None:
    """Writes all lock files.

    Raises:
        VgpuError: a package is not to be had for every architecture.
    """
    if sys.version_info[:2] != (3, 11):
        # pip asks the Python that it runs in which packages are for which Python.
        raise VgpuError(
            f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, and the image has "
            f"{downloads.PYTHON_VERSION}: locks are renewed by that one"
        )
    python = _resolve_python()
    packages = _resolve_debian(mirror)
    stamp = time.strftime(locks.STAMP_FORMAT, time.gmtime())
    content = {"suite": locks.SUITE, "stamp": stamp, "packages": packages}
    locks.DEBIAN_LOCK.write_text(to_rows(content))
    for architecture, text in python.items():
        locks.python_lock(architecture).write_text(text)


def wanted_of_python() -> list[str]:
    """Returns what pyproject.toml asks for in the image."""
    table = tomllib.loads((locks.ROOT / "pyproject.toml").read_text())["project"]
    return [*table["dependencies"], *table["optional-dependencies"]["agent"]]


def _resolve_debian(mirror: str) -> dict[str, list[dict[str, Any]]]:
    if not KEYRING.exists():
        raise VgpuError(f"{KEYRING} is missing", hint="apt install debian-archive-keyring")
    names = sorted(locks.read_contents().packages)
    with TemporaryDirectory(prefix="vgpu-apt-") as directory:
        env = _apt_directory(Path(directory), mirror)
        _apt(["apt-get", "--quiet", "update"], env)
        found = {
            architecture: [
                _locked(stanza) for stanza in _stanzas(_apt(
                    # Only for the architecture that it takes for its own does apt find packages
                    # that are for all of them.
                    ["apt-cache", f"--option=APT::Architecture={architecture}", "show",
                     "--no-all-versions", *names], env))
            ]
            for architecture in locks.ARCHITECTURES
        }  # fmt: skip
    for architecture, packages in found.items():
        lacking = set(names) - {each["name"] for each in packages}
        if lacking:
            raise VgpuError(
                f"Debian {locks.SUITE} has no {', '.join(sorted(lacking))} for {architecture}"
            )
    return {key: sorted(each, key=lambda one: str(one["name"])) for key, each in found.items()}


def _apt_directory(base: Path, mirror: str) -> dict[str, str]:
    """Sets apt up in a directory; returns the environment that it reads it with."""
    for name in ("state/lists/partial", "cache/archives/partial", "parts"):
        (base / name).mkdir(parents=True)
    (base / "status").touch()
    architectures = ",".join(locks.ARCHITECTURES)
    (base / "sources.list").write_text(
        "".join(
            f"deb [signed-by={KEYRING} arch={architectures}] {mirror}/{archive} {suite} main\n"
            for archive, suite in _ARCHIVES
        )
    )
    settings = {
        "Dir::State": base / "state",
        "Dir::State::status": base / "status",
        "Dir::Cache": base / "cache",
        "Dir::Etc::sourcelist": base / "sources.list",
        "Dir::Etc::sourceparts": base / "parts",
        "Dir::Etc::preferencesparts": base / "parts",
        "Dir::Etc::preferences": base / "none",
        "APT::Sandbox::User": "root",
        "APT::Architecture": next(iter(locks.ARCHITECTURES)),
        "Acquire::Languages": "none",
    }
    lines = [f'{key} "{value}";' for key, value in settings.items()]
    lines += ["#clear APT::Architectures;"]
    lines += [f'APT::Architectures:: "{each}";' for each in locks.ARCHITECTURES]
    (base / "apt.conf").write_text("\n".join(lines) + "\n")
    return {**os.environ, "APT_CONFIG": str(base / "apt.conf"), "LC_ALL": "C.UTF-8"}


def _apt(command: Sequence[str], env: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise downloads.Unreachable(f"{' '.join(command[:3])} failed: {done.stderr.strip()}")
    return done.stdout


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    for stanza in text.strip().split("\n\n"):
        lines = (line.partition(":") for line in stanza.splitlines() if line[:1].isalpha())
        yield {key: value.strip() for key, _, value in lines}


def _locked(stanza: Mapping[str, str]) -> dict[str, Any]:
    archive = "debian-security" if stanza["Filename"].startswith("pool/updates/") else "debian"
    return {
        "name": stanza["Package"],
        "version": stanza["Version"],
        "path": f"{archive}/{stanza['Filename']}",
        "size_bytes": int(stanza["Size"]),
        "sha256": stanza["SHA256"],
    }


def _resolve_python() -> dict[str, str]:
    """Returns the text of each architecture's lock; all have the same versions."""
    wanted, texts = wanted_of_python(), dict[str, str]()
    for architecture in locks.ARCHITECTURES:
        found = _pip_report(architecture, wanted)
        # The next architecture gets what the first one did.
        wanted = [f"{each['metadata']['name']}=={each['metadata']['version']}" for each in found]
        lines = sorted((_pinned(each) for each in found), key=str.lower)
        texts[architecture] = _PYTHON_HEADER.format(architecture=architecture) + "".join(lines)
    return texts


def _pinned(installed: Mapping[str, Any]) -> str:
    metadata = installed["metadata"]
    digest = installed["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{metadata['name']}=={metadata['version']} \\\n    --hash=sha256:{digest}\n"


def _pip_report(architecture: str, requirements: Iterable[str]) -> list[dict[str, Any]]:
    with TemporaryDirectory(prefix="vgpu-pip-") as directory:
        report = Path(directory, "report.json")
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-input",
             "--disable-pip-version-check", "--dry-run", "--ignore-installed",
             f"--target={directory}", f"--report={report}",
             *downloads.target_options(architecture), *requirements],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if done.returncode:
            raise downloads.Unreachable(
                f"pip finds no packages for {architecture}: {done.stderr.strip()}"
            )
        return list(json.loads(report.read_text())["install"])

"""Builds the project's own wheel for the image: for every glibc from 2.17 on, as `make wheel` does.

It is built in a copy of the sources, so that nothing else that a checkout has comes into it, and
nobody who builds there at the same time is in the way.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from libvgpu.errors import VgpuError

from .locks import ROOT

#: What the wheel is made of.
SOURCES: Final = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "libvgpu",
    "deviceplugin",
    "vgpuctl",
    "docs/man",
)
_BUILT: Final = (".so", ".so.1", ".o", ".pyc")
_BUILD_S = 900


def facts() -> dict[str, str]:
    """Returns name, version, description and license of pyproject.toml."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {key: str(table[key]) for key in ("name", "version", "description", "license")}


def portable_wheel(copy: Path, directory: Path, epoch_s: int) -> Path:
    """Builds the wheel; what did not change since the last time is not compiled again.

    Args:
        copy: the directory of the copied sources, which stays.
        directory: an empty one, for the wheel.
        epoch_s: the time of everything in it.

    Raises:
        VgpuError: it does not build, with what was said.
    """
    _bring_up_to_date(copy)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-input", "--no-index", "--no-deps",
         "--disable-pip-version-check", "--no-build-isolation", f"--wheel-dir={directory}", "."],
        cwd=copy, capture_output=True, text=True, check=False, timeout=_BUILD_S,
        env=os.environ | {"VGPU_PORTABLE": "1", "SOURCE_DATE_EPOCH": str(epoch_s)},
    )  # fmt: skip
    if done.returncode:
        raise VgpuError(
            f"the project's wheel does not build: {done.stderr.strip()}",
            hint="make image installs the compiler that it needs",
        )
    (wheel,) = directory.glob("*.whl")
    return wheel


def _bring_up_to_date(copy: Path) -> None:
    """Makes the copy what the sources are; files that are the same keep their time."""
    wanted = set(sources())
    there = {path.relative_to(copy) for path in copy.rglob("*") if path.is_file()}
    for stale in there - wanted:
        # Compiled files stay for the next build, which looks after them. What setuptools copied
        # goes, or a file that was renamed would still be in the wheel.
        if not stale.is_relative_to("build/objects") and not (
            stale.parts[0] == "build" and _is_built(stale)
        ):
            (copy / stale).unlink()
    for path in sorted(wanted):
        source, target = ROOT / path, copy / path
        content = source.read_bytes()
        if path not in there or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def sources() -> Iterator[Path]:
    """Yields the files that the wheel is made of, relative to the checkout."""
    for name in SOURCES:
        found = [ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*")
        for path in found:
            if path.is_file() and not _is_built(path) and path.name != "_native.c":
                yield path.relative_to(ROOT)


def _is_built(path: Path) -> bool:
    return path.name.endswith(_BUILT)

"""The stand-in for a container image: what deploy/examples/client/Dockerfile would put into one.

The client and the packages it imports are copied, readable for everyone, so that a pod of any user
can run them whatever the modes of the checkout; Python itself is the one that runs the demo, bound
at its own path. The image's directories are known by their container paths, with and without a
real root file system.
"""

import importlib.metadata
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.errors import VgpuError

from .rootfs import Bind

#: What the client imports; the same list as in its Dockerfile.
_DISTRIBUTIONS = ("cuda-bindings", "cuda-pathfinder", "nvidia-ml-py")
_DRIVER_DIRECTORY = "/run/nvidia/driver/lib64"
_PACKAGES_DIRECTORY = "/opt/sample/packages"
_PROGRAMS_DIRECTORY = "/opt/sample/bin"
_CLIENT_DIRECTORY = "/app"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """What a container starts from.

    Attributes:
        binds: the image's and the driver's directories, host to container.
        python: Python's own directories, which are at the same path on both sides.
        env: the image's environment.
    """

    binds: tuple[Bind, ...]
    python: tuple[Bind, ...]
    env: Mapping[str, str]


def build(directory: Path, client: Path) -> Image:
    """Puts the sample client's image together.

    Args:
        directory: an empty directory that takes the copies.
        client: the client's source file.

    Raises:
        VgpuError: something that it is made of is not installed or not built.
    """
    parts = {name: directory / name for name in ("app", "packages", "bin", "driver")}
    for part in parts.values():
        part.mkdir()
    _copy(client, parts["app"] / client.name)
    for library in _libraries():
        _copy(library, parts["driver"] / library.name)
    for name in _DISTRIBUTIONS:
        _copy_distribution(name, parts["packages"])
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    (parts["bin"] / "python3").symlink_to(executable)
    _make_readable(directory)
    return Image(
        binds=(
            Bind(str(parts["app"]), _CLIENT_DIRECTORY),
            Bind(str(parts["packages"]), _PACKAGES_DIRECTORY),
            Bind(str(parts["bin"]), _PROGRAMS_DIRECTORY),
            Bind(str(parts["driver"]), _DRIVER_DIRECTORY),
        ),
        python=_python(executable),
        env={
            "PATH": f"{_PROGRAMS_DIRECTORY}:{_SYSTEM_PATH}",
            "PYTHONPATH": _PACKAGES_DIRECTORY,
            "PYTHONUNBUFFERED": "1",
            "LD_LIBRARY_PATH": _DRIVER_DIRECTORY,
            "HOME": "/tmp",  # noqa: S108 - the container's own
            "LANG": "C.UTF-8",
        },
    )


def _libraries() -> list[Path]:
    libraries = sorted(SIM_LIBRARY_DIR.glob("*.so*"))
    if not libraries:
        raise VgpuError(
            f"the simulated driver is missing in {SIM_LIBRARY_DIR}", hint="build it: make build"
        )
    return libraries


def _copy_distribution(name: str, target: Path) -> None:
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise VgpuError(
            f"the demo's client needs the package {name}, which is not installed",
            hint=f"install it: {sys.executable} -m pip install {name}",
        ) from error
    for entry in distribution.files or ():
        source = Path(str(distribution.locate_file(entry)))
        if ".." not in entry.parts and source.is_file():
            _copy(source, target / entry)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copystat(source, target)  # compiled Python goes by its source's time


def _make_readable(directory: Path) -> None:
    for parent, _, files in os.walk(directory):
        os.chmod(parent, 0o755)  # noqa: S103 - what an image has
        for name in files:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                runs = os.stat(path).st_mode & stat.S_IXUSR
                os.chmod(path, 0o755 if runs else 0o644)


def _python(executable: str) -> tuple[Bind, ...]:
    """Returns binds of Python's installation, without what /usr and its like hold anyway."""
    roots = {sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.dirname(executable))}
    roots |= {os.path.realpath(root) for root in roots}
    outside = sorted(root for root in roots if not _is_system(root))
    kept = [r for r in outside if not any(r != o and r.startswith(o + "/") for o in outside)]
    return tuple(Bind(os.path.realpath(root), root) for root in kept)


def _is_system(path: str) -> bool:
    return path == "/" or path.startswith(("/usr/", "/lib")) or path == "/usr"

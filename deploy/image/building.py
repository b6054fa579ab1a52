"""Ties the steps: packages in, image and SBOM out."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

from libvgpu._sources import MACHINE
from libvgpu.errors import UsageError

from . import debian, downloads, locks, project, sbom
from .linking import check_libraries
from .oci import Settings, Written, write_archive
from .tree import File, Tree
from .wheels import install_wheel, metadata_of

OUTPUT: Final = locks.ROOT / "build/image"
SBOM_PATH: Final = "usr/share/doc/vgpu/image.spdx.json"
ENTRYPOINT: Final = ("python", "-m", "deviceplugin")
ENV: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    # The root file system is read-only, and holds no byte code: that would not be reproducible.
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Order:
    """What is to be built.

    Attributes:
        name: with or without registry and tag; the tag is else the project's version.
        output: a directory.
        cache: the directory of downloaded packages.
        mirror: of Debian, see `downloads.bring_debian`.
        with_project: without it, it is all that the project runs on and is no use by itself.
    """

    architecture: str = "amd64"
    name: str = "vgpu"
    output: Path = OUTPUT
    cache: Path = OUTPUT / "cache"
    mirror: str | None = None
    with_project: bool = True


@dataclass(frozen=True)
class Built:
    """What was built: two files, and what `oci` says of the first."""

    archive: Path
    sbom: Path
    written: Written


def full_name(name: str, version: str) -> str:
    """Returns an image's name with registry and tag, as containerd wants it."""
    first, _, rest = name.partition("/")
    if not rest:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:{version}"


def build(order: Order) -> Built:
    """Builds an image.

    Raises:
        Unreachable: packages are not to be had.
        VgpuError: something is not as the locks say, or the project does not compile.
    """
    machine = locks.machine_of(order.architecture)
    if order.with_project and machine != MACHINE:
        raise UsageError(
            f"there is no image for {order.architecture}: libvgpu is built for {MACHINE} only",
            hint="--without-project makes what it would run on",
        )
    order.output.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(order.output):
        return _build(order, machine)


def _build(order: Order, machine: str) -> Built:
    lock, own = locks.read_debian_lock(), project.facts()
    epoch_s = _epoch_s(lock)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))
    layers, components = _contents(order, lock, epoch_s)
    check_libraries(Tree({p: e for _, tree in layers for p, e in tree.entries.items()}), machine)

    title = own["name"] if order.with_project else f"{own['name']}-base"
    image = sbom.Component(
        f"{title}-image",
        own["version"],
        f"pkg:generic/{title}-image@{own['version']}?arch={order.architecture}",
        purpose="CONTAINER",
    )
    listing = sbom.document(image, components, created)
    layers[-1][1].add(SBOM_PATH, File(listing))
    stem = f"{title}-{own['version']}-{order.architecture}"
    archive, listed = order.output / f"{stem}.oci.tar", order.output / f"{stem}.spdx.json"
    labels = {
        "title": title,
        "description": own["description"],
        "version": own["version"],
        "licenses": own["license"],
        "created": created,
    }
    config = {
        "Entrypoint": list(ENTRYPOINT),
        "Env": [f"{key}={value}" for key, value in ENV.items()],
        "Labels": {f"org.opencontainers.image.{key}": value for key, value in labels.items()},
        "WorkingDir": "/",
    }
    name = full_name(order.name, own["version"])
    settings = Settings(name, order.architecture, config, epoch_s, created)
    written = write_archive(archive, layers, settings)
    listed.write_bytes(listing)
    return Built(archive, listed, written)


def _epoch_s(lock: locks.DebianLock) -> int:
    """Returns the time that everything in the image gets."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or str(lock.epoch_s)
    if not given.isdecimal():
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {given!r}, which is no number of seconds since 1970"
        )
    return int(given)


def _contents(
    order: Order, lock: locks.DebianLock, epoch_s: int
) -> tuple[list[tuple[str, Tree]], list[sbom.Component]]:
    """Returns the layers from below, each with what it is, and what they are made of."""
    contents = locks.read_contents()
    pinned = locks.python_lock(order.architecture)
    python = locks.read_python_lock(pinned)
    debs = downloads.bring_debian(lock, order.architecture, order.cache / "debian", order.mirror)
    wheels = downloads.bring_python(python, pinned, order.architecture, order.cache / "python")
    system, packages, vgpu = debian.system_tree(debs, contents), Tree(), Tree()
    for wheel in wheels:
        install_wheel(packages, wheel, contents.leave_out)
    layers = [(f"Debian {lock.suite}", system), ("packages of Python", packages)]
    components = [
        *_debian_components(lock, order.architecture, system),
        *(_wheel_component(wheel) for wheel in wheels),
    ]
    if order.with_project:
        own = project.facts()
        with TemporaryDirectory(prefix="vgpu-wheel-") as directory:
            wheel = project.portable_wheel(order.output / "source", Path(directory), epoch_s)
            install_wheel(vgpu, wheel, contents.leave_out)
        layers.append((f"{own['name']} {own['version']}", vgpu))
        components.append(
            sbom.Component(
                own["name"],
                own["version"],
                f"pkg:pypi/{own['name']}@{own['version']}",
                own["license"],
                purpose="APPLICATION",
            )
        )
    return layers, components


def _debian_components(
    lock: locks.DebianLock, architecture: str, tree: Tree
) -> Iterator[sbom.Component]:
    for each in lock.packages[architecture]:
        named = debian.licences_of(tree, each.name)
        where = f"/{debian.copyright_path(tree, each.name)}"
        yield sbom.Component(
            each.name,
            each.version,
            f"pkg:deb/debian/{quote(each.name)}@{quote(each.version)}"
            f"?arch={architecture}&distro={lock.suite}",
            licence_comment=f"{f'by Debian: {named}; ' if named else ''}whole text in {where}",
            sha256=each.sha256,
            source=f"{downloads.MIRROR}/{quote(each.path)}",
        )


def _wheel_component(wheel: Path) -> sbom.Component:
    metadata = metadata_of(wheel)
    name, version = str(metadata["Name"]), str(metadata["Version"])
    licence, comment = sbom.licence_of(metadata)
    normal = name.lower().replace("_", "-").replace(".", "-")
    return sbom.Component(
        name, version, f"pkg:pypi/{normal}@{version}", licence, comment, downloads.sha256_of(wheel)
    )


@contextmanager
def _one_at_a_time(output: Path) -> Iterator[None]:
    """Keeps two builds out of one another's files."""
    with open(output / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""What of the driver's user space lies on the node: libraries, tools, firmware. Reads only.

The directory with libcuda.so.1 has the driver's other libraries too. Those of one driver end in its
version; where the file has none (the simulated driver), sonames of NVIDIA's libraries are taken.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .trees import Tree

#: The two triplets of the machines that NVIDIA has drivers for.
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_CUDA = "libcuda.so.1"
_VERSIONED = re.compile(r"libcuda\.so\.(?P<version>\d+\.\d+(?:\.\d+)*)")
#: What a file of the driver, or a link to one, is called: libcuda, libnvcuvid, libEGL_nvidia.
_NVIDIAS = re.compile(r"lib(?:cuda|nv|\w*nvidia)[\w-]*\.so")
_SONAME = re.compile(r"lib(?:cuda|cudadebugger|nvidia-[a-z0-9-]+)\.so\.\d+")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_BINARY_DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/bin", "/usr/local/nvidia/bin")
_FIRMWARE = "/lib/firmware/nvidia"
_LOADER_CONFIG = "/etc/ld.so.conf.d"


@dataclass(frozen=True, slots=True)
class Library:
    """One library.

    Attributes:
        path: of the tree, links followed.
        host_path: the same on the node.
        names: what programs and other libraries ask for it by: the links to it next to it.
    """

    path: str
    host_path: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """The user space of one driver.

    Attributes:
        version: as the library's file says; empty where it says none.
        binaries: name and path on the node.
        firmware: path of the tree and path on the node.
    """

    version: str
    libraries: tuple[Library, ...]
    binaries: tuple[tuple[str, str], ...] = ()
    firmware: tuple[tuple[str, str], ...] = field(default=())


def library_directories(tree: Tree, machine: str) -> list[str]:
    """Returns where libraries lie in a tree, the likeliest first.

    Args:
        machine: as ``uname -m`` says.
    """
    triplet = _MULTIARCH.get(machine, f"{machine}-linux-gnu")
    found = [f"/usr/lib/{triplet}", "/usr/lib64", f"/lib/{triplet}", "/lib64"]
    for name in tree.names(_LOADER_CONFIG):
        text = tree.text(f"{_LOADER_CONFIG}/{name}") if name.endswith(".conf") else None
        lines = (line.split("#")[0].strip() for line in (text or "").splitlines())
        found += [line for line in lines if line.startswith("/")]
    return list(dict.fromkeys([*found, "/usr/lib", "/lib", "/usr/local/nvidia/lib64"]))


def find_driver_files(tree: Tree, directories: Sequence[str]) -> DriverFiles | None:
    """Returns the driver of a tree, None where no directory has libcuda.so.1.

    Args:
        directories: of the tree, in the order in which they are looked at.
    """
    for directory in directories:
        real = tree.real(f"{directory}/{_CUDA}")
        if not os.path.isfile(tree.at(real)):
            continue  # nor is a link that leads nowhere, as a driver that was removed leaves it
        match = _VERSIONED.fullmatch(os.path.basename(real))
        version = match["version"] if match else ""
        return DriverFiles(
            version,
            _libraries(tree, directory, os.path.dirname(real), version),
            _binaries(tree, os.path.dirname(directory)),
            _firmware(tree, version),
        )
    return None


def _libraries(tree: Tree, directory: str, real: str, version: str) -> tuple[Library, ...]:
    """Returns the libraries that lie with libcuda.so.1, by the names that both places give them."""
    names: dict[str, set[str]] = {}
    for place in dict.fromkeys((real, directory)):
        for name in tree.names(place):
            if _NVIDIAS.match(name) is None:
                continue  # following the links of all libraries of a node would take long
            target = tree.real(f"{place}/{name}")
            if _is_of_driver(os.path.basename(target), version):
                names.setdefault(target, set()).add(name)
    return tuple(
        Library(path, tree.on_host(path), tuple(sorted(found)))
        for path, found in sorted(names.items())
        if os.path.isfile(tree.at(path))
    )


def _is_of_driver(name: str, version: str) -> bool:
    if version:
        return name.endswith(f".so.{version}")
    return _SONAME.fullmatch(name) is not None


def _binaries(tree: Tree, parent: str) -> tuple[tuple[str, str], ...]:
    """Returns the driver's tools.

    Args:
        parent: of the directory that has the libraries; a driver in a place of its own has its
            tools in a ``bin`` next to them.
    """
    found = []
    for name in _BINARIES:
        for directory in (*_BINARY_DIRECTORIES, f"{parent.rstrip('/')}/bin"):
            real = tree.real(f"{directory}/{name}")
            if os.path.isfile(tree.at(real)):
                found.append((name, tree.on_host(real)))
                break
    return tuple(found)


def _firmware(tree: Tree, version: str) -> tuple[tuple[str, str], ...]:
    directory = f"{_FIRMWARE}/{version}"
    names = tree.names(directory) if version else []
    return tuple(
        (f"{directory}/{name}", tree.on_host(tree.real(f"{directory}/{name}")))
        for name in names
        if name.startswith("gsp") and name.endswith(".bin")
    )

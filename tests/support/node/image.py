"""Images of a node's containers, as archives that ``ctr images import`` takes.

The sample client's image is what deploy/examples/client/Dockerfile describes, made from this very
machine: its Python without packages, the libraries of both, and the two packages that the client
imports. So it fits the simulated driver and the shim that were built here, and needs no registry.
Every file is root's and readable for everyone. The agent's own image is that of `agent_image`.
"""

import atexit
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from libvgpu.artifacts import SHIM_PATH, SIM_LIBRARY_DIR
from support import ROOT
from support.node import parts as node_parts

CLIENT_SOURCE = ROOT / "deploy/examples/client/client.py"
CLIENT = "docker.io/library/vgpu-sample-client:0.1"
PAUSE = "docker.io/library/pause:test"
_DISTRIBUTIONS = ("cuda-bindings", "cuda-pathfinder", "nvidia-ml-py")
_PACKAGES = "/opt/packages"
_NOT_NEEDED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip",
               "turtledemo", "tkinter", "pydoc_data"}  # fmt: skip
#: What programs load by name, so that nobody lists it.
_OF_LIBC = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2",
            "libnss_files.so.2", "libgcc_s.so.1")  # fmt: skip
_ACCOUNTS = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsample:x:1000:1000::/tmp:/bin/sh\n",
    "/etc/group": "root:x:0:\nsample:x:1000:\n",
}


@cache
def _folder() -> Path:
    """Returns a folder for images that all nodes of a run have."""
    folder = Path(tempfile.mkdtemp(prefix="vgpu-images-"))
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def client() -> Path:
    """Returns the archive of the sample client's image."""
    archive = _folder() / "client.tar"
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    files = {"/app/client.py": CLIENT_SOURCE, python: Path(python), **_standard_library()}
    files |= _packages(_DISTRIBUTIONS)
    native = [file for file in files.values() if ".so" in file.name]
    files |= _libraries([Path(python), SHIM_PATH, *SIM_LIBRARY_DIR.glob("*.so.1"), *native])
    links = {"/usr/bin/python3": python} if python != "/usr/bin/python3" else {}
    env = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": _PACKAGES,
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
    }
    _write(archive, CLIENT, files, links, env, ["python3", "/app/client.py"])
    return archive


def _packages(distributions: Iterable[str]) -> dict[str, Path]:
    """Returns the files of distributions, by where they are in an image."""
    files = {}
    for name in distributions:
        distribution = importlib.metadata.distribution(name)
        for entry in distribution.files or ():
            source = Path(str(distribution.locate_file(entry)))
            if ".." not in entry.parts and source.is_file():
                files[f"{_PACKAGES}/{entry}"] = source
    return files


@cache
def pause() -> Path:
    """Returns the archive of the image of what holds a pod's namespaces."""
    archive = _folder() / "pause.tar"
    write_program(archive, PAUSE, "/pause", node_parts.pause())
    return archive


def write_program(archive: Path, name: str, path: str, program: Path, user: str = "") -> None:
    """Writes an image of one program that needs no library.

    Args:
        archive: the file to be written.
        name: of the image.
        path: of the program in it.
        user: as whom it runs, ``UID:GID``; root without it.
    """
    _write(archive, name, {path: program}, {}, {}, [path], user)


def _standard_library() -> dict[str, Path]:
    found = {}
    for root in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        for parent, directories, names in os.walk(root):
            directories[:] = [
                d for d in directories if d not in _NOT_NEEDED and not d.startswith("config-")
            ]
            for name in (n for n in names if ".opt-" not in n):
                found[os.path.join(parent, name)] = Path(parent, name)
    return found


def _libraries(native: Sequence[Path]) -> dict[str, Path]:
    """Returns what the loader would load for these files, by the path that it finds it under."""
    said = subprocess.run(
        ["ldd", *map(str, native)], capture_output=True, text=True, check=False
    ).stdout  # status 1 where one file is no program
    paths = set(re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", said, re.MULTILINE))
    for path in [path for path in paths if path.endswith("/libc.so.6")]:
        beside = (os.path.join(os.path.dirname(path), name) for name in _OF_LIBC)
        paths |= {other for other in beside if os.path.exists(other)}
    return {path: Path(path) for path in paths}


def _layer(path: Path, files: Mapping[str, Path], links: Mapping[str, str]) -> str:
    """Writes a layer; returns its digest."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for directory in _directories([*files, *links, *_ACCOUNTS, "/tmp/", "/run/", "/proc/"]):
            entry = tarfile.TarInfo(directory.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "/tmp" else 0o755
            tar.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        for name, text in _ACCOUNTS.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
        for name, source in sorted(files.items()):
            status = source.stat()
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mtime = status.st_size, int(status.st_mtime)
            entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
            with open(source, "rb") as content:
                tar.addfile(entry, content)
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _directories(paths: Sequence[str]) -> Iterator[str]:
    """Yields every directory above ``paths``, outer ones first."""
    found = {str(parent) for path in paths for parent in Path(path + "x").parents}
    yield from sorted(found - {"/"})


def _write(
    archive: Path,
    name: str,
    files: Mapping[str, Path],
    links: Mapping[str, str],
    env: Mapping[str, str],
    entry_point: Sequence[str],
    user: str = "",
) -> None:
    layer = archive.with_suffix(".layer")
    digest = _layer(layer, files, links)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": [f"{key}={value}" for key, value in env.items()],
                "Entrypoint": list(entry_point),
                "User": user,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}])
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for member, content in ((config_name, config), ("manifest.json", manifest.encode())):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        tar.add(layer, "layer.tar")
    layer.unlink()
